/*
 * TREE_SCAN and TREE_HASH: what is there, and what is in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/sha256.h"
#include "filetree/walk.h"
#include "relay/file_tree_work.h"
#include "relay/root_path.h"

#define HASH_CHUNK (256u << 10)
/* So often a word is said while one file is hashed. */
#define TICK_BYTES ((uint64_t)64 << 20)
#define HASH_TRIES 3

struct scan {
	struct tree_out *out;
	/* Where the rules in the tree do not count the walk knows none, and these are asked here.
	 */
	struct ignore *everywhere;
	char left_out[TREE_PATH_MAX + 1]; /* directory whose content goes with it */
	size_t left_out_len;
};

static bool is_left_out(struct scan *scan, const struct tree_entry *entry)
{
	if (!scan->everywhere)
		return false;
	if (scan->left_out_len > 0 &&
	    tree_path_is_within(entry->path, entry->path_len, scan->left_out, scan->left_out_len))
		return true;
	if (!ignore_matches(scan->everywhere, entry->path, entry->path_len,
			    entry->type == TREE_DIR))
		return false;
	if (entry->type == TREE_DIR) {
		memcpy(scan->left_out, entry->path, entry->path_len);
		scan->left_out_len = entry->path_len;
	}
	return true;
}

static int take_entry(void *arg, const struct tree_entry *entry, int dir_fd, const char *name,
		      struct error *err)
{
	struct scan *scan = arg;

	(void)dir_fd;
	(void)name;
	if (!is_left_out(scan, entry) && tree_out_entry(scan->out, RECORD_ENTRY, entry) < 0)
		return error_set(err, ERR_CANCELLED, "nobody listens");
	return 0;
}

static int scan_failed(struct tree_out *out, const struct error *err)
{
	enum wire_error_code code = WERR_IO;

	if (err->code == ERR_TOO_LARGE)
		code = WERR_TOO_LARGE;
	else if (err->errnum)
		code = root_path_error(err->errnum);
	return tree_out_failed(out, code, err->errnum, "%s", err->message);
}

static void ignore_freep(struct ignore **ignore)
{
	ignore_free(*ignore);
}

int tree_scan_work(struct tree_job *job)
{
	const struct wire_tree_scan *m = &job->request->tree_scan;
	int r = tree_root_open(job->relay, m->root);
	_cleanup_close_ int root = MAX_OF(r, -1);
	_cleanup_tree_out_ struct tree_out out = { .fd = job->out_fd };
	_cleanup_(ignore_freep) struct ignore *rules = ignore_new();
	_cleanup_error_ struct error err = { 0 };
	struct scan scan = { .out = &out };
	struct tree_walk_options options = {
		.skip_git = m->skip_git,
		.max_entries = m->max_entries,
	};

	if (r < 0)
		return tree_out_failed(&out, root_path_error(-r), -r, "%s: %s", m->root,
				       strerror(-r));
	if (m->rules.len > 0)
		ignore_add_global(rules, (const char *)m->rules.data, m->rules.len);
	if (m->no_rules)
		scan.everywhere = rules;
	else
		options.ignore = rules;
	if (tree_walk(root, &options, take_entry, &scan, &err) < 0)
		return scan_failed(&out, &err);
	return tree_out_done(&out);
}

/* 0, -1: nobody listens, or an errno. */
static int hash_content(int fd, uint8_t *chunk, struct tree_out *out, uint8_t digest[SHA256_SIZE])
{
	struct sha256 sha;
	uint64_t since = 0;
	ssize_t n;

	sha256_init(&sha);
	while ((n = read(fd, chunk, HASH_CHUNK)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		sha256_update(&sha, chunk, (size_t)n);
		since += (uint64_t)n;
		if (since < TICK_BYTES)
			continue;
		since = 0;
		wire_record_append(&out->buf, RECORD_TICK, NULL, 0);
		if (tree_out_flush(out) < 0)
			return -1;
	}
	sha256_final(&sha, digest);
	return 0;
}

/*
 * The state is that before reading. Whatever happened while it was read shows in the state
 * afterwards; then it is read again, and what never rests is flagged, so that its hash is believed
 * by nobody.
 */
static int hash_open_file(int fd, struct stat *st, uint8_t *chunk, struct tree_out *out,
			  struct tree_entry *entry)
{
	for (int i = 0; i < HASH_TRIES; i++) {
		struct stat after;
		int r = hash_content(fd, chunk, out, entry->sha256);

		if (r != 0)
			return r;
		if (fstat(fd, &after) < 0)
			return errno;
		tree_entry_from_stat(st, entry);
		entry->flags |= TREE_HAS_HASH;
		if (tree_same_stat(st, &after))
			return 0;
		entry->flags |= TREE_RACY;
		*st = after;
		if (lseek(fd, 0, SEEK_SET) < 0)
			return errno;
	}
	return 0;
}

static int hash_file(struct tree_dir *dir, const char *path, uint8_t *chunk, struct tree_out *out)
{
	struct tree_entry entry = { .path = path, .path_len = (uint32_t)strlen(path) };
	struct stat st = { 0 };
	_cleanup_close_ int fd = -1;
	int r = tree_open_file(dir, path, &st);

	fd = MAX_OF(r, -1);
	if (r >= 0)
		r = -hash_open_file(fd, &st, chunk, out, &entry);
	if (r == 1)
		return -1;
	if (r == 0)
		return tree_out_entry(out, RECORD_ENTRY, &entry);
	/* There, but not to be read: that is told apart from gone. */
	if (S_ISREG(st.st_mode)) {
		tree_entry_from_stat(&st, &entry);
		entry.flags = TREE_UNREADABLE;
		return tree_out_entry(out, RECORD_ENTRY, &entry);
	}
	return tree_out_path(out, RECORD_NONE, path, entry.path_len);
}

int tree_hash_work(struct tree_job *job)
{
	const char *root = job->request->tree_hash.root;
	_cleanup_tree_dir_ struct tree_dir dir = { .root = tree_root_open(job->relay, root),
						   .fd = -1 };
	_cleanup_free_ uint8_t *chunk = xmalloc_pages(HASH_CHUNK);
	_cleanup_tree_out_ struct tree_out out = { .fd = job->out_fd };
	_cleanup_error_ struct error err = { 0 };
	char path[TREE_PATH_MAX + 1];
	_cleanup_tree_in_ struct tree_in in = { 0 };
	struct record record;
	int r;

	if (dir.root < 0)
		return tree_out_failed(&out, root_path_error(-dir.root), -dir.root, "%s: %s", root,
				       strerror(-dir.root));
	tree_in_init(&in, job->in_fd, &out);
	while ((r = tree_in_next(&in, &record, &err)) > 0) {
		if (record.kind == RECORD_FINISH)
			return tree_out_done(&out);
		if (record.kind != RECORD_PATH ||
		    !tree_in_path(record.payload, record.length, path))
			return tree_out_failed(&out, WERR_PROTOCOL, 0, "this is no path");
		if (hash_file(&dir, path, chunk, &out) < 0)
			return EPIPE;
	}
	return r < 0 ? tree_out_failed(&out, WERR_PROTOCOL, 0, "%s", err.message) : EPIPE;
}
