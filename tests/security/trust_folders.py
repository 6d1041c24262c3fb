"""Folders of trusted keys, one for each member."""

from ringcast.trust import add_key, new_key


def folders(path, names):
    """Make a folder for each name, in which all trust all."""
    public = {name: new_key(path / name, name) for name in names}
    for name in names:
        for other in names:
            if other != name:
                add_key(path / name, other, public[other])
    return {name: path / name for name in names}
