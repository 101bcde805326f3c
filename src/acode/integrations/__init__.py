"""Other frameworks on acode's store; each needs its own extra, and nothing of acode needs any of them."""
