from hypothesis import settings

# No test depends on how fast the machine is.
settings.register_profile("ringcast", deadline=None, print_blob=True)
settings.load_profile("ringcast")
