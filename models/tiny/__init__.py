"""`tiny`: a whole HAMburger from nothing."""
