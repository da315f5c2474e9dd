/*
 * A scan walks the tree and its cache side by side, both in order. As long as everything is as the
 * cache says, nothing is written: at the end the cache's manifest itself is the answer. At the
 * first difference a manifest is begun, with what was the same so far from the cache.
 */
#include "workspace/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statfs.h>
#include <time.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "base/mem.h"
#include "base/owner.h"
#include "base/path.h"
#include "base/text.h"
#include "git/git.h"
#include "git/hidden.h"
#include "workspace/hasher.h"

#define LOOK_EVERY 256 /* entries between looks at cancel_fd and tellings of progress */

struct scan {
	const struct scan_options *options;
	struct scan_report *report;
	struct hasher *hasher;
	int dir_fd;
	const char *name;

	struct manifest *cache;
	struct manifest_cursor cursor;
	struct tree_entry cached; /* the cursor's, if has_cached */
	bool has_cached;
	bool without_ctime; /* a fence is off */

	uint64_t same;                  /* entries from the start that are as in the cache */
	struct manifest_writer *writer; /* NULL: all so far */
	uint64_t begin;
	uint64_t seen;
	struct owner owner;
	bool walking;
	struct owner_rights as; /* while the tree is walked */
};

/*
 * Ticks of the kernel's coarse clock, which is what local file systems write. Those that have their
 * clock elsewhere, or count in seconds, get room for the difference.
 */
uint64_t workspace_file_clock(int root_fd)
{
	static const uint64_t own_clock[] = {
		0xef53 /* ext */,       0x58465342 /* xfs */,     0x9123683e /* btrfs */,
		0x01021994 /* tmpfs */, 0x794c7630 /* overlay */, 0xf2f52010 /* f2fs */,
	};
	const uint64_t second = 1000000000;
	struct timespec now;
	struct statfs fs;
	uint64_t ns;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	ns = (uint64_t)now.tv_sec * second + (uint64_t)now.tv_nsec;
	if (fstatfs(root_fd, &fs) == 0)
		for (size_t i = 0; i < ARRAY_SIZE(own_clock); i++)
			if ((uint64_t)fs.f_type == own_clock[i])
				return ns;
	return ns - 3 * second;
}

static void skip(struct scan *s, const char *path, const char *reason)
{
	s->report->skipped_count++;
	left_out_add(s->report->skipped, path, reason);
}

void scan_report_clear(struct scan_report *report)
{
	json_decref(report->skipped);
	*report = (struct scan_report){ 0 };
}

/* Leaves the cursor at the entry of that path, or the first behind it. True: none was passed by. */
static bool seek_cache(struct scan *s, const struct tree_entry *entry, bool *found)
{
	bool straight = true;

	*found = false;
	while (s->has_cached) {
		int order = tree_path_compare(s->cached.path, s->cached.path_len, entry->path,
					      entry->path_len);

		*found = order == 0;
		if (order >= 0)
			return straight;
		straight = false;
		s->has_cached = manifest_next(&s->cursor, &s->cached);
	}
	return straight;
}

static bool is_same_state(const struct scan *s, const struct tree_entry *now)
{
	struct tree_entry cached = s->cached;

	if (s->without_ctime) {
		cached.ctime_ns = now->ctime_ns;
		cached.flags &= ~(uint32_t)TREE_RACY;
	}
	return tree_entry_same_state(&cached, now);
}

/*
 * What the cache knows of the entry is put into it. True: the cache's record may stand as it is. A
 * directory's times change with every name in it, also those that are left out; they tell nothing.
 */
static bool ask_cache(struct scan *s, struct tree_entry *entry, bool *known)
{
	bool found, straight = seek_cache(s, entry, &found), same = false;

	*known = false;
	if (!found)
		return false;
	switch (entry->type) {
	case TREE_DIR:
		same = s->cached.type == TREE_DIR && s->cached.mode == entry->mode &&
		       s->cached.flags == entry->flags;
		break;
	case TREE_SYMLINK:
		same = is_same_state(s, entry) && tree_entry_same_content(&s->cached, entry);
		break;
	case TREE_FILE:
		same = is_same_state(s, entry);
		*known = same && (s->cached.flags & TREE_HAS_HASH);
		same = same && (*known || !s->options->hash) && s->cached.links == entry->links;
		break;
	case TREE_NONE:
	case TREE_SPECIAL:
		break;
	}
	if (*known) {
		memcpy(entry->sha256, s->cached.sha256, TREE_HASH_SIZE);
		entry->flags |= TREE_HAS_HASH;
	}
	s->has_cached = manifest_next(&s->cursor, &s->cached);
	return same && straight;
}

static int copy_from_cache(struct scan *s, uint64_t count, struct error *err)
{
	struct manifest_cursor from = { .m = s->cache };
	struct tree_entry entry;

	while (count-- > 0 && manifest_next(&from, &entry)) {
		entry.flags &= ~(uint32_t)TREE_RACY;
		if (manifest_add(s->writer, &entry, err) < 0)
			return -1;
	}
	return 0;
}

static int begin_writing(struct scan *s, struct error *err)
{
	if (s->writer)
		return 0;
	/* In the server's own directory, with its own rights. */
	owner_leave(&s->as);
	if (manifest_create(s->dir_fd, s->name, &s->writer, err) < 0 ||
	    (s->walking && owner_take(&s->owner, &s->as, err) < 0))
		return -1;
	manifest_racy_from(s->writer, s->begin);
	if (s->options->temporary)
		manifest_temporary(s->writer);
	return copy_from_cache(s, s->same, err);
}

static void count(struct scan *s, const struct tree_entry *entry, enum hasher_fate fate)
{
	struct scan_report *r = s->report;

	r->files += entry->type == TREE_FILE;
	r->dirs += entry->type == TREE_DIR;
	r->symlinks += entry->type == TREE_SYMLINK;
	r->bytes += entry->size;
	if (fate != HASHER_PASSED) {
		r->hashed++;
		r->hashed_bytes += entry->size;
	}
}

/* `same`: the cache's record says the same. */
static int emit(void *arg, const struct tree_entry *entry, enum hasher_fate fate, bool same,
		struct error *err)
{
	struct scan *s = arg;

	if (fate == HASHER_UNREADABLE)
		skip(s, entry->path, "it may not be read");
	if (fate == HASHER_CHANGING)
		skip(s, entry->path, "it changed while it was read");
	if (fate == HASHER_GONE || fate == HASHER_UNREADABLE)
		return begin_writing(s, err);
	count(s, entry, fate);
	if (same && !s->writer) {
		s->same++;
		return 0;
	}
	return begin_writing(s, err) < 0 ? -1 : manifest_add(s->writer, entry, err);
}

static int look_around(struct scan *s, struct error *err)
{
	const struct scan_options *o = s->options;

	if (s->seen++ % LOOK_EVERY)
		return 0;
	if (o->cancel_fd >= 0 && latch_is_set(o->cancel_fd))
		return error_set(err, ERR_CANCELLED, "cancelled");
	if (!o->progress)
		return 0;
	owner_leave(&s->as);
	o->progress(o->progress_arg, &(struct scan_progress){ s->report->files, s->report->bytes });
	return owner_take(&s->owner, &s->as, err);
}

static int visit(void *arg, const struct tree_entry *found, int dir_fd, const char *name,
		 struct error *err)
{
	struct scan *s = arg;
	struct tree_entry entry = *found;
	bool known = false;

	(void)dir_fd;
	(void)name;
	if (look_around(s, err) < 0)
		return -1;
	if (s->options->skip_git && git_inside_hidden(entry.path, entry.path_len) > 0)
		return 0;
	if (entry.flags & TREE_UNREADABLE)
		skip(s, entry.path, "it may not be read");
	else if (entry.type == TREE_SPECIAL)
		skip(s, entry.path, "it is a socket, a fifo or a device");
	if (entry.type == TREE_SPECIAL)
		return 0;

	bool same = ask_cache(s, &entry, &known);

	return hasher_push(s->hasher, &entry, entry.type == TREE_FILE && s->options->hash && !known,
			   same, err);
}

static int check_bytes(void *arg, const struct tree_entry *entry, int dir_fd, const char *name,
		       struct error *err)
{
	struct scan *s = arg;

	if (visit(arg, entry, dir_fd, name, err) < 0)
		return -1;
	if (s->options->max_bytes && s->report->bytes > s->options->max_bytes)
		return error_set(err, ERR_TOO_LARGE,
				 "the files are larger than %llu MiB: leave some out by a "
				 ".berthignore",
				 (unsigned long long)(s->options->max_bytes >> 20));
	return 0;
}

static void note_hidden(void *arg, const char *path, size_t len, bool is_dir, const char *name,
			const char *rules)
{
	struct scan *s = arg;

	s->report->hidden_by_name += name && !rules;
	if (s->options->on_hidden)
		s->options->on_hidden(s->options->on_hidden_arg, path, len, is_dir, name, rules);
}

static int walk(struct scan *s, int root_fd, struct error *err)
{
	const struct scan_options *o = s->options;
	_cleanup_buf_ struct buf rules = { 0 };
	struct tree_walk_options options = {
		.ignore = NULL,
		.skip_git = o->skip_git,
		.max_entries = o->max_entries,
		.hides = o->hidden ? hidden_by_name : NULL,
		.keeps = o->hidden ? hidden_keeps : NULL,
		.hidden = note_hidden,
		.arg = o->hidden,
		.hidden_arg = s,
	};

	if (o->use_ignore) {
		if (hidden_rules(root_fd, &rules, err) < 0)
			return -1;
		options.ignore = ignore_new();
		ignore_add_global(options.ignore, buf_str(&rules), rules.len);
	}

	int rc = owner_of(root_fd, &s->owner, err);

	s->walking = true;
	if (rc == 0)
		rc = owner_take(&s->owner, &s->as, err);
	if (rc == 0)
		rc = tree_walk(root_fd, &options, check_bytes, s, err);
	if (rc == 0)
		rc = hasher_drain(s->hasher, err);
	s->walking = false;
	owner_leave(&s->as);
	ignore_free(options.ignore);
	return rc;
}

/* Named after where the directory is. False: it cannot be told. */
static bool cache_name(int root_fd, char out[SHA256_HEX_SIZE])
{
	char link[64], path[4096];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", root_fd);

	ssize_t n = readlink(link, path, sizeof(path));

	if (n <= 0 || (size_t)n == sizeof(path))
		return false;
	sha256_hex(path, (size_t)n, out);
	return true;
}

void workspace_cache(const char *cache_dir, int root_fd, int dir_fd, const char *name)
{
	_cleanup_close_ int fd = -1;
	char own[SHA256_HEX_SIZE];

	if (cache_dir && cache_name(root_fd, own) && dir_open(AT_FDCWD, cache_dir, &fd, NULL) == 0)
		manifest_lend(dir_fd, name, fd, own, NULL);
}

static int finish(struct scan *s, int cache_fd, const char *cache, struct error *err)
{
	/* What the cache has behind the tree's last entry is gone. */
	if (s->has_cached || !s->cache)
		if (begin_writing(s, err) < 0)
			return -1;
	s->report->unchanged = !s->writer;
	if (!s->writer)
		return s->options->temporary
			       ? manifest_lend(cache_fd, cache, s->dir_fd, s->name, err)
			       : manifest_share(cache_fd, cache, s->dir_fd, s->name, err);
	if (manifest_commit(steal(s->writer), err) < 0)
		return -1;
	if (cache_fd >= 0)
		manifest_lend(s->dir_fd, s->name, cache_fd, cache, NULL);
	return 0;
}

int workspace_scan(int root_fd, const struct scan_options *options, int dir_fd, const char *name,
		   struct scan_report *report, struct error *err)
{
	struct scan s = {
		.options = options,
		.report = report,
		.dir_fd = dir_fd,
		.name = name,
		.begin = workspace_file_clock(root_fd),
		.without_ctime = FENCE_OFF("workspace.cache.ctime"),
	};
	_cleanup_close_ int cache_fd = -1;
	char cache[SHA256_HEX_SIZE];

	*report = (struct scan_report){ .skipped = json_array() };
	if (options->cache_dir && cache_name(root_fd, cache) &&
	    dir_open(AT_FDCWD, options->cache_dir, &cache_fd, NULL) == 0)
		manifest_open(cache_fd, cache, &s.cache, NULL);
	s.cursor.m = s.cache;
	s.has_cached = manifest_next(&s.cursor, &s.cached);
	s.hasher = hasher_new(root_fd, options->threads, options->cancel_fd, emit, &s);

	int rc = walk(&s, root_fd, err);

	hasher_free(s.hasher);
	if (rc == 0)
		rc = finish(&s, cache_fd, cache, err);
	if (rc < 0) {
		manifest_abandon(s.writer);
		scan_report_clear(report);
	}
	manifest_close(s.cache);
	return rc;
}
