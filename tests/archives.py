"""Archives as registries publish them, made on the spot."""

import hashlib
import io
import tarfile
import zipfile


def checksum(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wheel(folder, files, name="tiny", version="1.0"):
    """The smallest wheel that pip accepts."""
    about = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": b"",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    return path


def tgz(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for member, content in files.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path
