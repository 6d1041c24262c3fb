"""ringcast inside other projects: each module needs the project that it is named
after."""
