"""Following the tree: wait statuses, notifications and memory reads become events."""
