"""`agentwrap keygen`: make the key that signs recordings from now on."""

import click

from agentwrap.cli.output import Output, common_options, pass_output


@click.command(short_help="Make the key that signs recordings.")
@common_options(json_output=True)
@pass_output
def command(output: Output) -> int:
    """Make an Ed25519 key pair for this user; recordings made from then on are signed with it.

    The private key never leaves its file (mode 0600). Give the public key to whoever has to verify your recordings:
    `agentwrap verify --key FILE`. A key that is there already is never replaced.
    """
    from agentwrap.recording.keys import generate, public_text
    from agentwrap.recording.places import key_paths

    private, public = key_paths(output.env)
    text = public_text(generate(private, public)).strip()
    if output.json:
        output.document({"private_key": str(private), "public_key": str(public), "public": text.split()[-1]})
    else:
        output.line(f"private key  {private}")
        output.line(f"public key   {public}")
        output.line(f"             {text}")
    return 0
