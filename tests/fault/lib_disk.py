"""What a disk may hold after a power loss, from the events of recorder.c. Standard library only.

Files are pages of a cache: a page that was written is on the disk when a sync of its file that began
later has returned; before that the disk has any version of it that there was since the last sync,
perhaps torn between two sectors. After a sync that failed the kernel takes the pages for clean: they
are read as they were written and are on the disk by chance, until they are written again. Names are on the disk when their directory was synced."""

import os
import struct

WRITE, TRUNCATE, SYNC, FAILED, SYNC_DIR, RENAME, UNLINK = range(1, 8)
PAGE, SECTOR = 4096, 512
HEADER = struct.Struct("=IIIIQQ")
# Made when the server starts, long before anything is promised.
STANDING = {"", "logs", "execs", "execs/kept", "execs/logs"}
NOTHING = bytes(PAGE)


def events_of(path):
    """(kind, name, offset, data, time) in order."""
    with open(path, "rb") as f:
        while len(head := f.read(HEADER.size)) == HEADER.size:
            kind, name_len, length, _, offset, moment = HEADER.unpack(head)
            name = f.read(name_len).decode()
            data = f.read(length)
            if len(data) < length:
                return
            yield kind, name, offset, data, moment


class File:
    def __init__(self):
        self.cache, self.disk, self.disk_size = bytearray(), {}, 0
        self.waiting = {}  # page: [(event, content)] since it was last on the disk
        self.sizes = []    # [(event, size)]

    def keep(self, event, page):
        part = bytes(self.cache[page * PAGE:(page + 1) * PAGE])
        self.waiting.setdefault(page, []).append((event, part.ljust(PAGE, b"\0")))

    def write(self, event, offset, data):
        end = offset + len(data)
        if end > len(self.cache):
            self.cache.extend(bytes(end - len(self.cache)))
            self.sizes.append((event, end))
        self.cache[offset:end] = data
        for page in range(offset // PAGE, (end - 1) // PAGE + 1):
            self.keep(event, page)

    def truncate(self, event, size):
        old = len(self.cache)
        if size < old:
            del self.cache[size:]
        else:
            self.cache.extend(bytes(size - old))
        self.sizes.append((event, size))
        for page in range(min(size, old) // PAGE, (old + PAGE - 1) // PAGE):
            self.keep(event, page)

    def settle(self, event, arrives=lambda: True):
        """Everything up to that event is on the disk, or is taken for that."""
        for page in list(self.waiting):
            versions = self.waiting[page]
            done = [v for v in versions if v[0] <= event]
            if done and arrives():
                self.disk[page] = done[-1][1]
            if len(done) == len(versions):
                del self.waiting[page]
            else:
                self.waiting[page] = versions[len(done):]
        done = [s for s in self.sizes if s[0] <= event]
        if done:
            self.disk_size = done[-1][1]
            self.sizes = self.sizes[len(done):]

    def after_power_loss(self, chance):
        size = chance.choice([self.disk_size] + [s for _, s in self.sizes])
        content = bytearray(size)
        for page in set(self.disk) | set(self.waiting):
            if page * PAGE >= size:
                continue
            versions = [self.disk.get(page, NOTHING)] + [v for _, v in self.waiting.get(page, [])]
            part = chance.choice(versions)
            if len(versions) > 1 and chance.random() < 0.2:
                other = chance.choice(versions)
                part = b"".join((part if chance.random() < 0.5 else other)[at:at + SECTOR]
                                for at in range(0, PAGE, SECTOR))
            content[page * PAGE:(page + 1) * PAGE] = part[:size - page * PAGE]
        return bytes(content)


class Disk:
    def __init__(self, chance, ignores=lambda name: False):
        """`ignores`: a disk that lies about syncs of these names."""
        self.chance, self.ignores = chance, ignores
        self.files, self.durable = {}, {}
        self.folders, self.waiting = set(STANDING), []  # [(event, folder, change)]
        self.count = 0

    def name_file(self, name):
        folder = os.path.dirname(name)
        if folder not in self.folders and not any(c == ("folder", folder) for _, _, c in self.waiting):
            self.waiting.append((self.count, os.path.dirname(folder), ("folder", folder)))
        self.files[name] = File()
        self.waiting.append((self.count, folder, ("add", name, self.files[name])))
        return self.files[name]

    def file(self, name):
        return self.files.get(name) or self.name_file(name)

    def change(self, change):
        if change[0] == "folder":
            self.folders.add(change[1])
        elif change[0] == "add":
            self.durable[change[1]] = change[2]
        elif change[0] == "move":
            self.durable.pop(change[1], None)
            self.durable[change[2]] = change[3]
        else:
            self.durable.pop(change[1], None)

    def sync_folder(self, folder, event):
        for entry in [w for w in self.waiting if w[1] == folder and w[0] <= event]:
            self.change(entry[2])
            self.waiting.remove(entry)

    def take(self, kind, name, offset, data):
        self.count += 1
        if kind == WRITE:
            self.file(name).write(self.count, offset, data)
        elif kind == TRUNCATE:
            self.file(name).truncate(self.count, offset)
        elif kind == SYNC and not self.ignores(name):
            self.file(name).settle(offset)
        elif kind == FAILED and name in self.files:
            self.files[name].settle(offset, lambda: self.chance.random() < 0.3)
        elif kind == SYNC_DIR:
            self.sync_folder(name, offset)
        elif kind == RENAME and name in self.files:
            to = data.decode()
            self.files[to] = self.files.pop(name)
            self.waiting.append((self.count, os.path.dirname(to), ("move", name, to, self.files[to])))
        elif kind == UNLINK and name in self.files:
            del self.files[name]
            self.waiting.append((self.count, os.path.dirname(name), ("gone", name)))

    def content(self, name):
        """Bytes after a power loss, or None."""
        if name not in self.durable or os.path.dirname(name) not in self.folders:
            return None
        return self.durable[name].after_power_loss(self.chance)
