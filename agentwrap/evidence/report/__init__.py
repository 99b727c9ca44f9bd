"""The review: controls performed again from a recording, each with what was tested, what it found, and how.

Nothing that the file says of itself is taken for granted where the bytes that were recorded can say it: messages are
read again, digests computed again, decisions judged again by the policy's own text. What cannot be performed again is
`cannot-tell`; it never counts as passed.
"""
