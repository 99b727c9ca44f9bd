"""What model traffic says: bytes of requests and answers in, plain facts out."""
