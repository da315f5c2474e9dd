/*
 * The record of an entry, little-endian:
 *
 *      0  u32  bytes of the whole record        32  u64  mtime
 *      4  u16  length of the path               40  u64  ctime
 *      6  u16  length of the target             48  u64  device
 *      8  u8   type                             56  u64  inode
 *      9  u8   0                                64  32 bytes SHA-256, with TREE_HAS_HASH only
 *     10  u16  mode                                 path, NUL
 *     12  u32  flags                                target, NUL, of a symlink only
 *     16  u32  links
 *     20  u32  0
 *     24  u64  size
 */
#include "filetree/entry.h"

#include <endian.h>
#include <string.h>

#define FIXED_SIZE 64
#define KNOWN_FLAGS ((uint32_t)(TREE_HAS_HASH | TREE_UNREADABLE | TREE_RACY))

/* The slash below every other byte: then a directory's content follows it at once. */
static int weight(char c)
{
	return c == '/' ? 0 : (unsigned char)c;
}

int tree_path_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t both = MIN_OF(a_len, b_len), i = 0;

	while (i < both && a[i] == b[i])
		i++;
	if (i < both)
		return weight(a[i]) - weight(b[i]);
	return a_len < b_len ? -1 : a_len > b_len;
}

bool tree_path_is_valid(const char *path, size_t len)
{
	if (len == 0 || len > TREE_PATH_MAX || memchr(path, '\0', len))
		return false;
	for (size_t at = 0; at <= len;) {
		const char *slash = memchr(path + at, '/', len - at);
		size_t n = slash ? (size_t)(slash - path) - at : len - at;

		if (n == 0 || n > 255 || (n <= 2 && memcmp(path + at, "..", n) == 0))
			return false;
		at += n + 1;
	}
	return true;
}

bool tree_path_is_within(const char *path, size_t len, const char *dir, size_t dir_len)
{
	return len >= dir_len && memcmp(path, dir, dir_len) == 0 &&
	       (len == dir_len || dir_len == 0 || path[dir_len] == '/');
}

static enum tree_type type_of(mode_t mode)
{
	if (S_ISDIR(mode))
		return TREE_DIR;
	if (S_ISREG(mode))
		return TREE_FILE;
	return S_ISLNK(mode) ? TREE_SYMLINK : TREE_SPECIAL;
}

static uint64_t nanoseconds(const struct timespec *t)
{
	return t->tv_sec < 0 ? 0 : (uint64_t)t->tv_sec * 1000000000U + (uint64_t)t->tv_nsec;
}

void tree_entry_from_stat(const struct stat *st, struct tree_entry *out)
{
	out->type = type_of(st->st_mode);
	out->flags = 0;
	out->mode = st->st_mode & 07777;
	out->size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
	out->mtime_ns = nanoseconds(&st->st_mtim);
	out->ctime_ns = nanoseconds(&st->st_ctim);
	out->dev = st->st_dev;
	out->ino = st->st_ino;
	out->links = S_ISREG(st->st_mode) ? (uint32_t)MIN_OF(st->st_nlink, UINT32_MAX) : 0;
}

bool tree_entry_same_state(const struct tree_entry *a, const struct tree_entry *b)
{
	return a->type == b->type && a->mode == b->mode && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns && a->dev == b->dev &&
	       a->ino == b->ino && !((a->flags | b->flags) & TREE_RACY);
}

bool tree_entry_same_content(const struct tree_entry *a, const struct tree_entry *b)
{
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case TREE_FILE:
		return a->mode == b->mode && a->size == b->size &&
		       (a->flags & b->flags & TREE_HAS_HASH) &&
		       memcmp(a->sha256, b->sha256, TREE_HASH_SIZE) == 0;
	case TREE_SYMLINK:
		return a->target_len == b->target_len &&
		       memcmp(a->target, b->target, a->target_len) == 0;
	case TREE_NONE:
	case TREE_DIR:
	case TREE_SPECIAL:
		break;
	}
	return true;
}

static char *put16(char *p, uint32_t v)
{
	uint16_t le = htole16((uint16_t)v);

	memcpy(p, &le, sizeof(le));
	return p + sizeof(le);
}

static char *put32(char *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static char *put64(char *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static uint32_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static size_t record_size(uint32_t flags, enum tree_type type, size_t path_len, size_t target_len)
{
	return FIXED_SIZE + (flags & TREE_HAS_HASH ? TREE_HASH_SIZE : 0) + path_len + 1 +
	       (type == TREE_SYMLINK ? target_len + 1 : 0);
}

void tree_entry_encode(struct buf *out, const struct tree_entry *e)
{
	size_t size = record_size(e->flags, e->type, e->path_len, e->target_len);

	buf_reserve(out, size);

	char *p = out->data + out->len;

	p = put32(p, (uint32_t)size);
	p = put16(p, e->path_len);
	p = put16(p, e->type == TREE_SYMLINK ? e->target_len : 0);
	p = put16(p, (uint32_t)e->type);
	p = put16(p, e->mode);
	p = put32(p, e->flags);
	p = put32(p, e->links);
	p = put32(p, 0);
	p = put64(p, e->size);
	p = put64(p, e->mtime_ns);
	p = put64(p, e->ctime_ns);
	p = put64(p, e->dev);
	p = put64(p, e->ino);
	if (e->flags & TREE_HAS_HASH) {
		memcpy(p, e->sha256, TREE_HASH_SIZE);
		p += TREE_HASH_SIZE;
	}
	memcpy(p, e->path, e->path_len);
	p[e->path_len] = '\0';
	p += e->path_len + 1;
	if (e->type == TREE_SYMLINK) {
		memcpy(p, e->target, e->target_len);
		p[e->target_len] = '\0';
	}
	out->len += size;
	out->data[out->len] = '\0';
}

static bool texts_are_valid(const struct tree_entry *e)
{
	if (e->path[e->path_len] || !tree_path_is_valid(e->path, e->path_len))
		return false;
	if (e->type != TREE_SYMLINK)
		return e->target_len == 0;
	return e->target_len > 0 && e->target_len <= TREE_PATH_MAX && !e->target[e->target_len] &&
	       !memchr(e->target, '\0', e->target_len);
}

static bool numbers_are_valid(const struct tree_entry *e)
{
	if (e->type > TREE_SPECIAL || (e->flags & ~KNOWN_FLAGS) || e->mode > 07777 ||
	    e->size > INT64_MAX)
		return false;
	return e->type == TREE_FILE || (e->size == 0 && !(e->flags & TREE_HAS_HASH));
}

ssize_t tree_entry_decode(const void *data, size_t len, struct tree_entry *e, struct error *err)
{
	const uint8_t *p = data;

	if (len < FIXED_SIZE)
		return 0;

	size_t size = get32(p);

	*e = (struct tree_entry){
		.path_len = get16(p + 4),
		.target_len = get16(p + 6),
		.type = (enum tree_type)get16(p + 8),
		.mode = get16(p + 10),
		.flags = get32(p + 12),
		.links = get32(p + 16),
		.size = get64(p + 24),
		.mtime_ns = get64(p + 32),
		.ctime_ns = get64(p + 40),
		.dev = get64(p + 48),
		.ino = get64(p + 56),
	};
	if (size > TREE_RECORD_MAX || get32(p + 20) != 0 || !numbers_are_valid(e) ||
	    size != record_size(e->flags, e->type, e->path_len, e->target_len))
		return error_set(err, ERR_PROTOCOL, "an entry of a tree is malformed");
	if (len < size)
		return 0;
	p += FIXED_SIZE;
	if (e->flags & TREE_HAS_HASH) {
		memcpy(e->sha256, p, TREE_HASH_SIZE);
		p += TREE_HASH_SIZE;
	}
	e->path = (const char *)p;
	if (e->type == TREE_SYMLINK)
		e->target = e->path + e->path_len + 1;
	if (!texts_are_valid(e))
		return error_set(err, ERR_PROTOCOL, "a path in a tree is malformed");
	return (ssize_t)size;
}
