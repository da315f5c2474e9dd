/*
 * The file, little-endian:
 *
 *     8 bytes    "berthmf1"
 *     records    of filetree/entry.h
 *     u64 each   offset of the first record of every block
 *     u64        where the records end
 *     u64        how many they are
 *     u64        bytes of all files
 *     u64        ctime from which on files are racy
 *     u64        number of blocks
 *     32 bytes   SHA-256 of everything before
 */
#include "workspace/manifest.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/text.h"

#define MAGIC "berthmf1"
#define MAGIC_SIZE (sizeof(MAGIC) - 1)
#define TRAILER_NUMBERS 5
#define TRAILER_SIZE (TRAILER_NUMBERS * sizeof(uint64_t) + SHA256_SIZE)
#define BLOCK_SIZE ((size_t)8192)
#define FLUSH_SIZE ((size_t)262144)
/* Mapped pages this far behind a cursor are given back. */
#define BEHIND ((size_t)1 << 20)

struct manifest_writer {
	int dir_fd, fd; /* both its own */
	char *name;
	char tmp[32];
	struct buf pending;
	struct sha256 sum;
	uint64_t offset; /* of the file's end with what is pending */
	uint64_t block_start;
	uint64_t *blocks;
	size_t block_count, block_cap;
	uint64_t count, bytes, racy_from;
	bool temporary;
	char last[TREE_PATH_MAX + 1];
	size_t last_len;
};

static int flush(struct manifest_writer *w, struct error *err)
{
	sha256_update(&w->sum, w->pending.data, w->pending.len);
	if (fd_write_all(w->fd, w->pending.data, w->pending.len, err) < 0)
		return error_wrap(err, "write the manifest %s", w->name);
	buf_reset(&w->pending);
	return 0;
}

static void append(struct manifest_writer *w, const void *data, size_t len)
{
	buf_append(&w->pending, data, len);
	w->offset += len;
}

int manifest_create(int dir_fd, const char *name, struct manifest_writer **out, struct error *err)
{
	struct manifest_writer *w = xcalloc(1, sizeof(*w));
	uint8_t tail[8];
	char hex[2 * sizeof(tail) + 1];

	random_bytes(tail, sizeof(tail));
	hex_encode(hex, tail, sizeof(tail));
	snprintf(w->tmp, sizeof(w->tmp), ".tmp-%s", hex);
	w->name = xstrdup(name);
	w->racy_from = UINT64_MAX;
	w->fd = -1;
	w->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	if (w->dir_fd >= 0)
		w->fd = openat(w->dir_fd, w->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (w->fd < 0) {
		error_errno(err, errno, "create the manifest %s", name);
		manifest_abandon(w);
		return -1;
	}
	sha256_init(&w->sum);
	append(w, MAGIC, MAGIC_SIZE);
	*out = w;
	return 0;
}

static void note_block(struct manifest_writer *w)
{
	if (w->block_count > 0 && w->offset - w->block_start < BLOCK_SIZE)
		return;
	if (w->block_count == w->block_cap) {
		w->block_cap = MAX_OF(64, w->block_cap * 2);
		w->blocks = xreallocarray(w->blocks, w->block_cap, sizeof(*w->blocks));
	}
	w->blocks[w->block_count++] = w->block_start = w->offset;
}

int manifest_add(struct manifest_writer *w, const struct tree_entry *entry, struct error *err)
{
	size_t before = w->pending.len;

	if (w->count > 0 &&
	    tree_path_compare(w->last, w->last_len, entry->path, entry->path_len) >= 0)
		return error_set(err, ERR_INTERNAL, "the manifest %s is written out of order",
				 w->name);
	note_block(w);
	tree_entry_encode(&w->pending, entry);
	w->offset += w->pending.len - before;
	w->count++;
	w->bytes += entry->size;
	memcpy(w->last, entry->path, entry->path_len);
	w->last_len = entry->path_len;
	return w->pending.len < FLUSH_SIZE ? 0 : flush(w, err);
}

void manifest_racy_from(struct manifest_writer *w, uint64_t ctime_ns)
{
	w->racy_from = ctime_ns;
}

void manifest_temporary(struct manifest_writer *w)
{
	w->temporary = true;
}

static void append_number(struct manifest_writer *w, uint64_t v)
{
	v = htole64(v);
	append(w, &v, sizeof(v));
}

static int finish(struct manifest_writer *w, struct error *err)
{
	uint64_t end = w->offset;
	uint8_t digest[SHA256_SIZE];

	for (size_t i = 0; i < w->block_count; i++)
		append_number(w, w->blocks[i]);
	append_number(w, end);
	append_number(w, w->count);
	append_number(w, w->bytes);
	append_number(w, w->racy_from);
	append_number(w, w->block_count);
	if (flush(w, err) < 0)
		return -1;
	sha256_final(&w->sum, digest);
	if (fd_write_all(w->fd, digest, sizeof(digest), err) < 0 ||
	    (!w->temporary && fd_sync(w->fd, err) < 0))
		return error_wrap(err, "write the manifest %s", w->name);
	if (renameat(w->dir_fd, w->tmp, w->dir_fd, w->name) < 0)
		return error_errno(err, errno, "put the manifest %s in place", w->name);
	w->tmp[0] = '\0';
	return w->temporary ? 0 : dir_sync(w->dir_fd, err);
}

int manifest_commit(struct manifest_writer *w, struct error *err)
{
	int rc = finish(w, err);

	manifest_abandon(w);
	return rc;
}

void manifest_abandon(struct manifest_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0 && w->tmp[0])
		unlinkat(w->dir_fd, w->tmp, 0);
	close_fdp(&w->fd);
	close_fdp(&w->dir_fd);
	buf_free(&w->pending);
	free(w->blocks);
	free(w->name);
	free(w);
}

struct manifest {
	const uint8_t *map;
	size_t size;
	size_t end; /* of the records */
	uint64_t count, bytes, racy_from;
	const uint8_t *blocks;
	size_t block_count;
};

static uint64_t number_at(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

/* By reading, not through the map: pages of a map count as the server's own memory. */
static bool checksum_holds(int fd, size_t size)
{
	_cleanup_free_ uint8_t *chunk = xmalloc_pages(FLUSH_SIZE);
	uint8_t got[SHA256_SIZE], want[SHA256_SIZE];
	size_t at = 0, body = size - SHA256_SIZE;
	struct sha256 sum;

	sha256_init(&sum);
	while (at < body) {
		ssize_t n = pread(fd, chunk, MIN_OF(FLUSH_SIZE, body - at), (off_t)at);

		if (n <= 0)
			return false;
		sha256_update(&sum, chunk, (size_t)n);
		at += (size_t)n;
	}
	sha256_final(&sum, got);
	return pread(fd, want, sizeof(want), (off_t)body) == (ssize_t)sizeof(want) &&
	       memcmp(got, want, sizeof(want)) == 0;
}

static bool layout_holds(struct manifest *m)
{
	const uint8_t *trailer = m->map + m->size - TRAILER_SIZE;
	uint64_t end = number_at(trailer), blocks = number_at(trailer + 32);
	size_t room = m->size - TRAILER_SIZE - MAGIC_SIZE;

	if (memcmp(m->map, MAGIC, MAGIC_SIZE) != 0 || blocks > room / sizeof(uint64_t) ||
	    end != m->size - TRAILER_SIZE - blocks * sizeof(uint64_t))
		return false;
	m->end = (size_t)end;
	m->count = number_at(trailer + 8);
	m->bytes = number_at(trailer + 16);
	m->racy_from = number_at(trailer + 24);
	m->blocks = m->map + m->end;
	m->block_count = (size_t)blocks;
	return true;
}

int manifest_open(int dir_fd, const char *name, struct manifest **out, struct error *err)
{
	_cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_manifest_ struct manifest *m = xcalloc(1, sizeof(*m));
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "open the manifest %s", name);
	if (!S_ISREG(st.st_mode) || (size_t)st.st_size < MAGIC_SIZE + TRAILER_SIZE ||
	    !checksum_holds(fd, (size_t)st.st_size))
		return error_set(err, ERR_IO, "the manifest %s is damaged", name);

	void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (map == MAP_FAILED)
		return error_errno(err, errno, "map the manifest %s", name);
	m->map = map;
	m->size = (size_t)st.st_size;
	if (!layout_holds(m))
		return error_set(err, ERR_IO, "the manifest %s is damaged", name);
	*out = steal(m);
	return 0;
}

void manifest_close(struct manifest *m)
{
	if (!m)
		return;
	if (m->map)
		munmap((void *)(uintptr_t)m->map, m->size);
	free(m);
}

uint64_t manifest_count(const struct manifest *m)
{
	return m ? m->count : 0;
}

uint64_t manifest_bytes(const struct manifest *m)
{
	return m ? m->bytes : 0;
}

/* How many bytes it took; 0 at the end. The checksum has vouched for what is written there. */
static size_t record_at(const struct manifest *m, size_t at, struct tree_entry *out)
{
	ssize_t n = at < m->end ? tree_entry_decode(m->map + at, m->end - at, out, NULL) : 0;

	if (n <= 0)
		return 0;
	if (out->type == TREE_FILE && out->ctime_ns >= m->racy_from)
		out->flags |= TREE_RACY;
	return (size_t)n;
}

/* The last block whose first path is not behind the one sought. */
static size_t block_of(const struct manifest *m, const char *path, size_t len)
{
	size_t low = 0, high = m->block_count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		struct tree_entry e;

		if (record_at(m, number_at(m->blocks + 8 * middle), &e) > 0 &&
		    tree_path_compare(e.path, e.path_len, path, len) <= 0)
			low = middle;
		else
			high = middle;
	}
	return low;
}

bool manifest_find(const struct manifest *m, const char *path, size_t len, struct tree_entry *out)
{
	if (!m || m->block_count == 0)
		return false;

	size_t at = number_at(m->blocks + 8 * block_of(m, path, len));

	for (;;) {
		size_t n = record_at(m, at, out);
		int order = n ? tree_path_compare(out->path, out->path_len, path, len) : 1;

		if (order >= 0)
			return order == 0;
		at += n;
	}
}

bool manifest_next(struct manifest_cursor *c, struct tree_entry *out)
{
	if (!c->m)
		return false;
	if (c->at < MAGIC_SIZE)
		c->at = MAGIC_SIZE;

	size_t n = record_at(c->m, c->at, out);

	/* Crossing into a new stretch gives back the one before the last: whoever still holds an
	 * entry of it reads it from the file again. */
	if (c->at / BEHIND != (c->at + n) / BEHIND && c->at / BEHIND > 0)
		madvise((void *)(uintptr_t)(c->m->map + (c->at / BEHIND - 1) * BEHIND), BEHIND,
			MADV_DONTNEED);
	c->at += n;
	return n > 0;
}

bool manifest_is_same(int a_dir, const char *a, int b_dir, const char *b)
{
	struct stat x, y;

	return fstatat(a_dir, a, &x, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(b_dir, b, &y, AT_SYMLINK_NOFOLLOW) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

static int copy_manifest(int from_dir, const char *from, int to_dir, const char *to,
			 struct error *err)
{
	_cleanup_manifest_ struct manifest *m = NULL;
	struct manifest_cursor cursor = { 0 };
	struct manifest_writer *w = NULL;
	struct tree_entry entry;

	if (manifest_open(from_dir, from, &m, err) < 0 || manifest_create(to_dir, to, &w, err) < 0)
		return -1;
	w->racy_from = m->racy_from;
	w->temporary = true;
	cursor.m = m;
	while (manifest_next(&cursor, &entry)) {
		if (manifest_add(w, &entry, err) < 0) {
			manifest_abandon(w);
			return -1;
		}
	}
	return manifest_commit(w, err);
}

int manifest_lend(int from_dir, const char *from, int to_dir, const char *to, struct error *err)
{
	uint8_t tail[8];
	char hex[2 * sizeof(tail) + 1], tmp[32];

	if (manifest_is_same(from_dir, from, to_dir, to))
		return 0;
	random_bytes(tail, sizeof(tail));
	hex_encode(hex, tail, sizeof(tail));
	snprintf(tmp, sizeof(tmp), ".tmp-%s", hex);
	if (linkat(from_dir, from, to_dir, tmp, 0) < 0) {
		if (errno == ENOENT)
			return error_errno(err, errno, "open the manifest %s", from);
		return copy_manifest(from_dir, from, to_dir, to, err);
	}
	if (renameat(to_dir, tmp, to_dir, to) < 0) {
		error_errno(err, errno, "put the manifest %s in place", to);
		unlinkat(to_dir, tmp, 0);
		return -1;
	}
	return 0;
}

int manifest_sync(int dir_fd, const char *name, struct error *err)
{
	_cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "open the manifest %s", name);
	return fd_sync(fd, err) < 0 ? error_wrap(err, "write the manifest %s", name) : 0;
}

int manifest_share(int from_dir, const char *from, int to_dir, const char *to, struct error *err)
{
	if (manifest_lend(from_dir, from, to_dir, to, err) < 0 ||
	    manifest_sync(to_dir, to, err) < 0)
		return -1;
	return dir_sync(to_dir, err);
}

void left_out_add(json_t *list, const char *path, const char *reason)
{
	json_t *item;

	if (json_array_size(list) >= LEFT_OUT_MAX)
		return;
	item = json_object();
	json_put_str(item, "path", path);
	json_put_str(item, "reason", reason);
	json_array_append_new(list, item);
}
