/*
 * A place whose root is a directory of the test's own, trees that grow at random, and what one
 * looks like to somebody who only uses the file system.
 */
#pragma once

#include "execs.h"
#include <dirent.h>
#include <errno.h>
#include "base/sha256.h"
#include "place/tree.h"
#include "filetree/walk.h"

struct trees {
	struct execs *t;
	struct place_ref in;
	char root[96];
	int root_fd; /* of the place */
	int host_fd; /* trees outside it */
};

static inline int trees_setup(void **state)
{
	struct trees *f = calloc(1, sizeof(*f));
	struct exec_place place = place_with("tree-place", 1);
	void *t;

	assert_non_null(f);
	execs_setup(&t);
	f->t = t;
	snprintf(f->root, sizeof(f->root), "%s/root", f->t->dir->path);
	assert_int_equal(mkdir(f->root, 0755), 0);
	assert_int_equal(mkdirat(f->t->dir->fd, "host", 0755), 0);
	f->root_fd = open(f->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f->host_fd = openat(f->t->dir->fd, "host", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	place.root = f->root;
	assert_int_equal(places_open(f->t->places, &place, NULL), 0);
	f->in = (struct place_ref){ f->t->places, "tree-place", 1 };
	*state = f;
	return 0;
}

static inline int trees_teardown(void **state)
{
	struct trees *f = *state;
	void *t = f->t;

	close(f->root_fd);
	close(f->host_fd);
	free(f);
	return execs_teardown(&t);
}

#define with_trees(test) cmocka_unit_test_setup_teardown(test, trees_setup, trees_teardown)

#define must(call)                                                                                 \
	do {                                                                                       \
		struct error why_[1] = { 0 };                                                      \
		struct error *why = why_;                                                          \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s: %s", #call, error_code_name(why->code), why->message);   \
	} while (0)

/* Growing */

static inline uint32_t chance(uint64_t *seed, uint32_t below)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33) % below;
}

static inline void random_name(uint64_t *seed, char out[256])
{
	static const char *const odd[] = { "\n",  "a\nb", "\xff\xfe", "\xc3\x28", " ",   "...",
					   "-rf", "a*",   "\x01",     "#x",       "!y",  "\"",
					   "\\",  "a.b",  "a-b",      "A",        "..a", "%s" };
	size_t len = chance(seed, 20) == 0 ? 255 : 1 + chance(seed, 12);

	if (chance(seed, 3) == 0) {
		snprintf(out, 256, "%s", odd[chance(seed, ARRAY_SIZE(odd))]);
		return;
	}
	for (size_t i = 0; i < len; i++)
		out[i] = (char)('a' + chance(seed, 5));
	out[len] = 0;
}

static inline void write_random(uint64_t *seed, int fd)
{
	static const size_t sizes[] = { 0, 1, 100, 4096, 10000, 65536, 300000 };
	size_t len = sizes[chance(seed, ARRAY_SIZE(sizes))];
	_cleanup_free_ char *data = xmalloc(len + 1);

	random_bytes(data, len);
	assert_int_equal(fd_write_all(fd, data, len, NULL), 0);
	if (chance(seed, 8) == 0)
		assert_int_equal(ftruncate(fd, (off_t)(len + 400000)), 0);
}

/* So many things, in directories of their own now and then. */
static inline void grow(int dir, uint64_t *seed, int things, int depth)
{
	static const mode_t modes[] = { 0644, 0755, 0600, 0444, 0777, 0640 };

	for (int i = 0; i < things; i++) {
		char name[256];
		struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
					     { .tv_sec = 1000000000 + chance(seed, 1000000),
					       .tv_nsec = chance(seed, 1000000000) } };
		uint32_t kind = chance(seed, 10);
		int fd = -1;

		random_name(seed, name);
		if (kind < 2 && depth > 0 && mkdirat(dir, name, 0755) == 0) {
			fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			grow(fd, seed, things / 2 + 1, depth - 1);
			fchmod(fd, chance(seed, 4) == 0 ? 0555 : 0755);
		} else if (kind == 2) {
			const char *target = chance(seed, 2) ? "../x\n" : "/etc/passwd";

			assert_true(symlinkat(target, dir, name) == 0 || errno == EEXIST);
		} else if ((fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC,
					0600)) >= 0) {
			write_random(seed, fd);
			fchmod(fd, modes[chance(seed, ARRAY_SIZE(modes))]);
			futimens(fd, times);
		}
		if (fd >= 0)
			close(fd);
	}
}

/* Looking */

static inline void look_at(int dir, const char *name, const struct stat *st, struct buf *out)
{
	_cleanup_buf_ struct buf content = { 0 };
	char target[4096] = "", hash[65];
	uint8_t digest[32];

	if (S_ISLNK(st->st_mode)) {
		ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);

		target[MAX_OF(n, 0)] = 0;
		buf_printf(out, " link %s\n", target);
	} else if (S_ISREG(st->st_mode)) {
		assert_int_equal(file_read(dir, name, &content, 64 << 20, NULL), 0);
		sha256_once(content.data, content.len, digest);
		hex_encode(hash, digest, sizeof(digest));
		buf_printf(out, " file %o %lld %lld.%ld %s\n", st->st_mode & 07777,
			   (long long)st->st_size, (long long)st->st_mtim.tv_sec,
			   st->st_mtim.tv_nsec, hash);
	} else if (S_ISDIR(st->st_mode)) {
		buf_printf(out, " dir %o\n", st->st_mode & 07777);
	} else {
		buf_puts(out, " special\n");
	}
}

/* Everything in a directory, a line each, in an order of its own. */
static inline void picture(int dir, const char *prefix, struct buf *out)
{
	char path[4096];
	struct dirent **names;
	int n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", dir);
	n = scandir(path, &names, NULL, alphasort);
	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		struct stat st;

		if (!streq(name, ".") && !streq(name, "..")) {
			_cleanup_free_ char *whole = xasprintf("%s/%s", prefix, name);

			assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
			buf_puts(out, whole);
			look_at(dir, name, &st, out);
			if (S_ISDIR(st.st_mode)) {
				int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

				picture(fd, whole, out);
				close(fd);
			}
		}
		free(names[i]);
	}
	free(names);
}

static inline void assert_same_trees(int a, int b)
{
	_cleanup_buf_ struct buf one = { 0 }, two = { 0 };

	picture(a, "", &one);
	picture(b, "", &two);
	assert_string_equal(buf_str(&one), buf_str(&two));
}

static inline int open_dir(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static inline void write_text(int dir, const char *name, const char *text)
{
	assert_int_equal(file_replace(dir, name, text, strlen(text), 0644, NULL), 0);
}

static inline void assert_text(int dir, const char *name, const char *text)
{
	_cleanup_buf_ struct buf content = { 0 };

	assert_int_equal(file_read(dir, name, &content, 1 << 20, NULL), 0);
	assert_string_equal(buf_str(&content), text);
}

/* Entries that are kept */

struct kept {
	struct buf bytes; /* records */
	size_t count;
};

static inline int keep(void *arg, const struct tree_entry *entry, struct error *err)
{
	struct kept *k = arg;

	(void)err;
	tree_entry_encode(&k->bytes, entry);
	k->count++;
	return 0;
}

static inline int keep_walked(void *arg, const struct tree_entry *entry, int dir_fd,
			      const char *name, struct error *err)
{
	(void)dir_fd;
	(void)name;
	return keep(arg, entry, err);
}

static inline bool kept_next(const struct kept *k, size_t *pos, struct tree_entry *entry)
{
	ssize_t n;

	if (*pos == k->bytes.len)
		return false;
	n = tree_entry_decode(k->bytes.data + *pos, k->bytes.len - *pos, entry, NULL);
	assert_true(n > 0);
	*pos += (size_t)n;
	return true;
}

/* "path path ..." of what was kept. */
static inline char *kept_paths(const struct kept *k)
{
	_cleanup_buf_ struct buf text = { 0 };
	struct tree_entry entry;
	size_t pos = 0;

	while (kept_next(k, &pos, &entry))
		buf_printf(&text, "%s%s", text.len ? " " : "", entry.path);
	return buf_steal(&text);
}

/* Copying */

struct copying {
	struct tree_writer *writer;
	char chunk[100000];
};

static inline int copy_entry(void *arg, const struct tree_entry *entry, int dir_fd,
			     const char *name, struct error *err)
{
	struct copying *c = arg;
	_cleanup_close_ int fd = -1;
	ssize_t n;

	if (entry->type == TREE_DIR)
		return tree_writer_dir(c->writer, entry, err);
	if (entry->type == TREE_SYMLINK)
		return tree_writer_symlink(c->writer, entry, err);
	if (entry->type != TREE_FILE)
		return 0;
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (tree_writer_file(c->writer, entry, err) < 0)
		return -1;
	while ((n = read(fd, c->chunk, sizeof(c->chunk))) > 0)
		if (tree_writer_data(c->writer, c->chunk, (size_t)n, err) < 0)
			return -1;
	return 0;
}

/* The whole tree below a directory of the host. */
static inline int copy_in(const struct place_ref *in, int from, const struct place_put *put,
			  struct error *err)
{
	struct copying *c = xcalloc(1, sizeof(*c));
	struct tree_walk_options options = { 0 };
	int rc = place_tree_put(in, put, &c->writer, err);

	if (rc == 0) {
		rc = tree_walk(from, &options, copy_entry, c, err);
		if (rc < 0)
			tree_writer_abandon(c->writer);
		else
			rc = tree_writer_commit(c->writer, err);
	}
	free(c);
	return rc;
}
