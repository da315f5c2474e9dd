#include "relay/file_info.h"

#include <stdio.h>

static uint64_t nanoseconds(struct timespec t)
{
	/* Times before 1970 are shown as 1970. */
	return t.tv_sec < 0 ? 0 : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static enum wire_file_type type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return FILE_REGULAR;
	case S_IFDIR:
		return FILE_DIRECTORY;
	case S_IFLNK:
		return FILE_SYMLINK;
	case S_IFIFO:
		return FILE_FIFO;
	case S_IFSOCK:
		return FILE_SOCKET;
	case S_IFCHR:
		return FILE_CHAR;
	case S_IFBLK:
		return FILE_BLOCK;
	default:
		return FILE_OTHER;
	}
}

void file_tag(const struct stat *st, char out[FILE_TAG_SIZE])
{
	snprintf(out, FILE_TAG_SIZE, "%llx-%llx-%llx-%llx", (unsigned long long)st->st_ino,
		 (unsigned long long)st->st_size, (unsigned long long)nanoseconds(st->st_mtim),
		 (unsigned long long)nanoseconds(st->st_ctim));
}

void file_describe(const struct stat *st, char tag[FILE_TAG_SIZE], struct wire_file_info *out)
{
	file_tag(st, tag);
	*out = (struct wire_file_info){
		.type = type_of(st->st_mode),
		.mode = st->st_mode & 07777,
		.size = (uint64_t)st->st_size,
		.mtime_ns = nanoseconds(st->st_mtim),
		.ctime_ns = nanoseconds(st->st_ctim),
		.uid = st->st_uid,
		.gid = st->st_gid,
		.inode = st->st_ino,
		.tag = tag,
	};
}
