"""From options and what this machine allows to a child that stands stopped under its filter."""
