"""HAMburgers in other people's stacks: each module here is for one of them, and nothing else imports it."""
