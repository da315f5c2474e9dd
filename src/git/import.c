/*
 * git_import. The order of things, each of which may be the last before a crash: quarantine, check,
 * objects, the ref of HEAD, the refs of the rest. Objects without a ref are only garbage; a ref is
 * written when everything it needs is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "git/cli.h"
#include "git/place_repo.h"

#define MAX_KEPT 1000
#define MAX_PACKS 1000
#define CHECK_MAX (256U << 20)

struct kept {
	const struct git_ref *ref; /* of the place */
	char *name;                /* on the host */
	bool commit;               /* has to be one */
};

struct import {
	struct git_quarantine q;
	const char *run_id;
	const json_t *about;
	struct git_place place;
	struct git_refs host;
	struct kept *kept;
	size_t kept_count;
	struct buf tips, bases; /* a name a line; bases are what the host has */
	char *why;              /* refused, and why */
	char *index_why;
	char *kept_why;
};

static void import_clear(struct import *im)
{
	for (size_t i = 0; i < im->kept_count; i++)
		free(im->kept[i].name);
	free(im->kept);
	git_place_clear(&im->place);
	git_refs_clear(&im->host);
	git_quarantine_clear(&im->q);
	buf_free(&im->tips);
	buf_free(&im->bases);
	free(im->why);
	free(im->index_why);
	free(im->kept_why);
}

/* A refusal by git, in its own words; what may be different next time stays an error. */
static int refuse_for(struct import *im, const char *what, struct error *bad, struct error *err)
{
	switch (bad->code) {
	case ERR_UNPROCESSABLE:
	case ERR_TOO_LARGE:
	case ERR_IO:      /* ended by a signal */
	case ERR_TIMEOUT: /* as the next try would be */
		break;
	default:
		error_move(err, bad);
		return -1;
	}
	im->why = xasprintf("%s: %s", what, bad->message);
	error_clear(bad);
	return 0;
}

static int compare_oids(const void *a, const void *b)
{
	return strcmp((*(const struct git_ref *const *)a)->oid,
		      (*(const struct git_ref *const *)b)->oid);
}

static char *kept_name(const char *run_id, const char *ref)
{
	static const char *const prefixes[][2] = {
		{ "refs/heads/", "refs/berth-branches/" },
		{ "refs/tags/", "refs/berth-tags/" },
		{ "refs/", "refs/berth-refs/" },
	};

	for (size_t i = 0;; i++) {
		if (str_starts(ref, prefixes[i][0]))
			return xasprintf("%s%s/%s", prefixes[i][1], run_id,
					 ref + strlen(prefixes[i][0]));
	}
}

/* Refs of the place whose objects no ref of the host names. */
static void choose_kept(struct import *im)
{
	_cleanup_free_ const struct git_ref **known = xcalloc(im->host.count + 1, sizeof(*known));

	for (size_t i = 0; i < im->host.count; i++)
		known[i] = &im->host.items[i];
	qsort(known, im->host.count, sizeof(*known), compare_oids);
	for (size_t i = 0; i < im->place.refs.count; i++) {
		const struct git_ref *ref = &im->place.refs.items[i];

		if (ref->target || git_ref_is_ours(ref->name) ||
		    streq(ref->name, im->place.head_ref) ||
		    bsearch(&ref, known, im->host.count, sizeof(*known), compare_oids))
			continue;

		_cleanup_free_ char *name = kept_name(im->run_id, ref->name);

		if (im->kept_count == MAX_KEPT || !git_ref_is_valid(name, strlen(name))) {
			if (!im->kept_why)
				im->kept_why = xasprintf("of %d new refs and more, or with a very "
							 "long name, not all are kept",
							 MAX_KEPT);
			continue;
		}
		im->kept = xreallocarray(im->kept, im->kept_count + 1, sizeof(*im->kept));
		im->kept[im->kept_count++] =
			(struct kept){ .ref = ref,
				       .name = steal(name),
				       .commit = str_starts(ref->name, "refs/heads/") };
	}
}

static void put_line(struct buf *out, const char *prefix, const char *text)
{
	buf_puts(out, prefix);
	buf_puts(out, text);
	buf_putc(out, '\n');
}

/*
 * Kinds of objects, a line each, in the order asked: "commit", "blob", ..., "" when it is not
 * there. Asks the host's store, with `objects` that one too.
 */
static int kinds_of(struct import *im, const char *objects, const struct buf *names,
		    struct buf *kinds, struct error *err)
{
	_cleanup_strv_ char **env = git_objects_env(&im->q, objects);
	struct git_call call = {
		.repo = im->q.repo,
		.args = GIT_ARGS("cat-file", "--batch-check=%(objecttype)"),
		.env = env,
		.input = buf_str(names),
		.input_len = names->len,
		.max_output = CHECK_MAX,
		.hostile = true,
	};
	_cleanup_buf_ struct buf answer = { 0 };

	if (git_run(&call, &answer, NULL, err) < 0)
		return -1;
	/* "<name> missing" is the answer for what is not there. */
	for (const char *line = buf_str(&answer), *end; (end = strchr(line, '\n'));
	     line = end + 1) {
		if (!memchr(line, ' ', (size_t)(end - line)))
			buf_append(kinds, line, (size_t)(end - line));
		buf_putc(kinds, '\n');
	}
	return 0;
}

/* Takes one line off two lists that go side by side; false at the end. */
static bool next_pair(const char **names, const char **kinds, char name[GIT_OID_MAX], char kind[16])
{
	size_t n = strcspn(*names, "\n"), k = strcspn(*kinds, "\n");

	if (!(*names)[n] || !(*kinds)[k] || n >= GIT_OID_MAX || k >= 16)
		return false;
	memcpy(name, *names, n);
	name[n] = '\0';
	memcpy(kind, *kinds, k);
	kind[k] = '\0';
	*names += n + 1;
	*kinds += k + 1;
	return true;
}

/* What the host has already is the base that new objects are counted from. */
static int find_bases(struct import *im, struct error *err)
{
	_cleanup_buf_ struct buf names = { 0 }, kinds = { 0 };
	char name[GIT_OID_MAX], kind[16];

	for (size_t i = 0; i < im->host.count; i++)
		put_line(&names, "", im->host.items[i].oid);
	if (json_str(im->about, "head"))
		put_line(&names, "", json_str(im->about, "head"));
	if (!names.len)
		return 0;
	if (kinds_of(im, NULL, &names, &kinds, err) < 0)
		return -1;
	for (const char *n = buf_str(&names), *k = buf_str(&kinds);
	     next_pair(&n, &k, name, kind);) {
		if (kind[0])
			put_line(&im->bases, "", name);
	}
	return 0;
}

/* What the index of the place names and the host does not have: staged, not committed. */
static int find_staged(struct import *im, struct error *err)
{
	_cleanup_buf_ struct buf names = { 0 }, kinds = { 0 };
	char name[GIT_OID_MAX], kind[16];

	for (size_t i = 0; i < im->place.index.count; i++) {
		if (im->place.index.items[i].mode != 0160000)
			put_line(&names, "", im->place.index.items[i].oid);
	}
	if (!names.len)
		return 0;
	if (kinds_of(im, NULL, &names, &kinds, err) < 0)
		return -1;
	for (const char *n = buf_str(&names), *k = buf_str(&kinds);
	     next_pair(&n, &k, name, kind);) {
		if (!kind[0])
			put_line(&im->tips, "", name);
	}
	return 0;
}

static int choose_tips(struct import *im, struct error *err)
{
	if (git_host_refs(im->q.repo, im->q.sha256, &im->host, err) < 0)
		return -1;
	choose_kept(im);
	if (im->place.head[0] && !str_equal(im->place.head, json_str(im->about, "head")))
		put_line(&im->tips, "", im->place.head);
	for (size_t i = 0; i < im->kept_count; i++)
		put_line(&im->tips, "", im->kept[i].ref->oid);
	return find_staged(im, err) < 0 ? -1 : find_bases(im, err);
}

/* On bytes of the place, however long it takes. What git dies of is why nothing comes home. */
static int run_or_refuse(struct import *im, struct git_call *call, const char *why,
			 struct error *err)
{
	_cleanup_error_ struct error bad = { 0 };

	call->repo = im->q.repo;
	call->timeout_ms = GIT_LONG_TIMEOUT_MS;
	call->hostile = true;
	return git_run(call, NULL, NULL, &bad) < 0 ? refuse_for(im, why, &bad, err) : 0;
}

/* The place's own indexes of its packs are not believed: git makes new ones. */
static int index_packs(struct import *im, struct error *err)
{
	_cleanup_free_ char *dir = path_join(im->q.place, "objects/pack");
	_cleanup_close_ int fd = -1;
	_cleanup_strv_ char **names = NULL;

	if (git_names_in(im->q.repo, dir, &names, &fd, err) < 0)
		return -1;
	if (strv_len(names) > MAX_PACKS) {
		im->why = xasprintf("it has more than %d new packs", MAX_PACKS);
		return 0;
	}
	for (char **name = names; name && *name; name++) {
		_cleanup_free_ char *path = path_join(dir, *name);
		struct git_call call = { .args = GIT_ARGS("index-pack", path), .writes = true };

		if (run_or_refuse(im, &call, "one of its packs is broken", err) < 0)
			return -1;
		if (im->why)
			break;
	}
	return 0;
}

/*
 * Packs what the tips need and the host lacks, out of the place's objects. Names are not in a pack:
 * an object that lies about its name is under its true one afterwards, and missed under the other.
 */
static int pack_new(struct import *im, int pack_fd, struct error *err)
{
	_cleanup_free_ char *objects = path_join(im->q.place, "objects");
	_cleanup_strv_ char **env = git_objects_env(&im->q, objects);
	_cleanup_buf_ struct buf revs = { 0 };

	buf_append(&revs, buf_str(&im->tips), im->tips.len);
	buf_puts(&revs, "--not\n");
	buf_append(&revs, buf_str(&im->bases), im->bases.len);

	struct git_call call = {
		.args = GIT_ARGS("pack-objects", "--revs", "--stdout", "-q", "--threads=1",
				 "--window-memory=64m"),
		.env = env,
		.input = revs.data,
		.input_len = revs.len,
		.output_fd = pack_fd,
	};

	return run_or_refuse(im, &call, "its objects cannot be read", err);
}

static int check_pack(struct import *im, int pack_fd, struct error *err)
{
	_cleanup_free_ char *objects = path_join(im->q.checked, "objects");
	_cleanup_strv_ char **env = git_objects_env(&im->q, objects);
	struct git_call call = {
		.args = GIT_ARGS("index-pack", "--strict", "--stdin", "--threads=1"),
		.env = env,
		.input_fd = pack_fd,
		.writes = true,
	};

	if (lseek(pack_fd, 0, SEEK_SET) < 0)
		return error_errno(err, errno, "rewind");
	return run_or_refuse(im, &call, "its objects are not sound", err);
}

/* Everything the tips lead to is there, without the place's own store. */
static int check_connected(struct import *im, struct error *err)
{
	_cleanup_free_ char *objects = path_join(im->q.checked, "objects");
	_cleanup_strv_ char **env = git_objects_env(&im->q, objects);
	_cleanup_buf_ struct buf revs = { 0 };

	buf_append(&revs, buf_str(&im->tips), im->tips.len);
	for (const char *line = buf_str(&im->bases), *end; (end = strchr(line, '\n'));
	     line = end + 1)
		buf_printf(&revs, "^%.*s\n", (int)(end - line), line);

	struct git_call call = {
		.args = GIT_ARGS("rev-list", "--objects", "--quiet", "--stdin"),
		.env = env,
		.input = revs.data,
		.input_len = revs.len,
	};

	return run_or_refuse(im, &call, "objects are missing", err);
}

static int expect_kind(struct import *im, const char *objects, const struct buf *names,
		       const char *want, const char *what, struct error *err)
{
	_cleanup_buf_ struct buf kinds = { 0 };
	char name[GIT_OID_MAX], kind[16];

	if (!names->len)
		return 0;
	if (kinds_of(im, objects, names, &kinds, err) < 0)
		return -1;
	for (const char *n = buf_str(names), *k = buf_str(&kinds); next_pair(&n, &k, name, kind);) {
		if (streq(kind, want) || im->why)
			continue;
		im->why = xasprintf("%s is no %s", what, want);
	}
	return 0;
}

/* HEAD and branches are commits, what is staged are files: git takes ill to anything else. */
static int check_kinds(struct import *im, struct error *err)
{
	_cleanup_free_ char *objects = path_join(im->q.checked, "objects");
	_cleanup_buf_ struct buf commits = { 0 }, blobs = { 0 };

	if (im->place.head[0])
		put_line(&commits, "", im->place.head);
	for (size_t i = 0; i < im->kept_count; i++) {
		if (im->kept[i].commit)
			put_line(&commits, "", im->kept[i].ref->oid);
	}
	for (size_t i = 0; i < im->place.index.count; i++) {
		if (im->place.index.items[i].mode != 0160000)
			put_line(&blobs, "", im->place.index.items[i].oid);
	}
	if (expect_kind(im, objects, &commits, "commit", "one of its branches", err) < 0)
		return -1;
	return im->why ? 0 : expect_kind(im, objects, &blobs, "blob", "an entry of its index", err);
}

/* The pack before its index: git sees a pack by its index. */
static int compare_for_entry(const void *a, const void *b)
{
	bool x = str_ends(*(char *const *)a, ".idx"), y = str_ends(*(char *const *)b, ".idx");

	return (int)x - (int)y;
}

static int take_over(struct import *im, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_free_ char *from = path_join(im->q.checked, "objects/pack");
	_cleanup_free_ char *to = path_join(im->q.repo->common_dir, "objects/pack");
	_cleanup_close_ int from_fd = -1, to_fd = -1;
	_cleanup_strv_ char **names = NULL;

	if (git_names_in(im->q.repo, from, &names, &from_fd, err) < 0 ||
	    git_open_dir(im->q.repo, to, true, &to_fd, err) < 0)
		return -1;
	if (names)
		qsort(names, strv_len(names), sizeof(*names), compare_for_entry);
	if (owner_enter(im->q.repo, &as, err) < 0)
		return -1;
	for (char **name = names; name && *name; name++) {
		if (!str_starts(*name, "pack-"))
			continue;
		if (linkat(from_fd, *name, to_fd, *name, 0) < 0 && errno != EEXIST)
			return error_errno(err, errno, "move %s/%s", from, *name);
	}
	return dir_sync(to_fd, err);
}

static int open_pack_file(struct import *im, int *fd, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_free_ char *path = path_join(im->q.dir, "new.pack");

	if (owner_enter(im->q.repo, &as, err) < 0)
		return -1;
	*fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return *fd < 0 ? error_errno(err, errno, "create %s", path) : 0;
}

static int import_objects(struct import *im, struct error *err)
{
	_cleanup_close_ int pack = -1;

	if (im->tips.len) {
		if (index_packs(im, err) < 0)
			return -1;
		if (im->why)
			return 0;
		if (open_pack_file(im, &pack, err) < 0 || pack_new(im, pack, err) < 0)
			return -1;
		if (!im->why && check_pack(im, pack, err) < 0)
			return -1;
		if (!im->why && check_connected(im, err) < 0)
			return -1;
	}
	if (!im->why && check_kinds(im, err) < 0)
		return -1;
	if (im->why || !im->tips.len)
		return 0;
	if (FAULT_HERE("workspace.git.import.objects", err) < 0)
		return -1;
	return take_over(im, err);
}

static int update_refs(struct import *im, const struct buf *lines, struct error *err)
{
	struct git_call call = {
		.repo = im->q.repo,
		.args = GIT_ARGS("update-ref", "--stdin"),
		.input = buf_str(lines),
		.input_len = lines->len,
		.writes = true,
	};

	return lines->len ? git_run(&call, NULL, NULL, err) : 0;
}

static bool head_is_new(const struct import *im)
{
	return im->place.head[0] && !str_equal(im->place.head, json_str(im->about, "head"));
}

static int write_refs(struct import *im, struct error *err)
{
	_cleanup_buf_ struct buf head = { 0 }, others = { 0 };
	_cleanup_error_ struct error bad = { 0 };

	if (FAULT_HERE("workspace.git.import.refs", err) < 0)
		return -1;
	if (head_is_new(im))
		buf_printf(&head, "update refs/berth/%s %s\n", im->run_id, im->place.head);
	if (update_refs(im, &head, err) < 0)
		return -1;
	for (size_t i = 0; i < im->kept_count; i++)
		buf_printf(&others, "update %s %s\n", im->kept[i].name, im->kept[i].ref->oid);
	if (update_refs(im, &others, &bad) == 0)
		return 0;
	if (bad.code != ERR_UNPROCESSABLE) {
		error_move(err, &bad);
		return -1;
	}
	/* Names that get in each other's way, say. HEAD is safe. */
	free(im->kept_why);
	im->kept_why = xasprintf("its other refs are not kept: %s", bad.message);
	while (im->kept_count)
		free(im->kept[--im->kept_count].name);
	return 0;
}

/* How many commits the run made, for people; not knowing is no failure. */
static int64_t count_commits(struct import *im)
{
	_cleanup_error_ struct error none = { 0 };
	_cleanup_buf_ struct buf answer = { 0 };
	const char *staged = json_str(im->about, "head");
	_cleanup_free_ char *except = staged ? xasprintf("^%s", staged) : NULL;
	struct git_call call = {
		.repo = im->q.repo,
		.args = GIT_ARGS("rev-list", "--count", im->place.head, except),
	};
	int64_t count = 0;

	if (git_run(&call, &answer, NULL, &none) < 0)
		return 0;
	answer.data[strcspn(answer.data, "\n")] = '\0';
	return parse_i64(answer.data, 0, INT64_MAX, &count) ? count : 0;
}

static json_t *make_report(struct import *im)
{
	json_t *report = json_object(), *kept = json_array();
	_cleanup_free_ char *ref = xasprintf("refs/berth/%s", im->run_id);
	bool fresh = !im->why && head_is_new(im);
	const char *reason = im->why ? im->why : im->kept_why;

	for (size_t i = 0; i < im->kept_count && !im->why; i++) {
		json_t *one = json_object();

		json_put_str(one, "name", im->kept[i].ref->name);
		json_put_str(one, "ref", im->kept[i].name);
		json_put_str(one, "head", im->kept[i].ref->oid);
		json_array_append_new(kept, one);
	}
	json_put_bool(report, "taken", !im->why);
	json_put_str(report, "head", im->place.head[0] ? im->place.head : NULL);
	json_put_str(report, "branch", im->place.head_ref[0] ? im->place.head_ref : NULL);
	json_put_int(report, "commits", fresh ? count_commits(im) : 0);
	json_put_str(report, "ref", fresh ? ref : NULL);
	json_put_new(report, "kept", kept);
	json_put_bool(report, "moved", false);
	json_put_str(report, "index", im->index_why ? "left" : "unchanged");
	if (im->why) {
		_cleanup_free_ char *text =
			xasprintf("nothing is taken from the place's repository: %s", im->why);

		json_put_str(report, "reason", text);
	} else {
		json_put_str(report, "reason", reason ? reason : im->index_why);
	}
	return report;
}

/* The place left its repository as it got it. */
static void keep_as_staged(struct import *im)
{
	const char *head = json_str(im->about, "head"), *ref = json_str(im->about, "headRef");

	snprintf(im->place.head, sizeof(im->place.head), "%s", head ? head : "");
	snprintf(im->place.head_ref, sizeof(im->place.head_ref), "%s", ref ? ref : "");
}

int git_import(int root_fd, const char *path, const char *run_id, const json_t *about,
	       int fetched_fd, int cancel_fd, struct git_seen *seen, json_t **report,
	       struct error *err)
{
	_cleanup_repo_ struct git_repo repo = { 0 };
	_cleanup_(import_clear) struct import im = { .run_id = run_id, .about = about };

	*report = NULL;
	if (git_repo_find(root_fd, path, cancel_fd, &repo, err) < 0)
		return -1;
	if (repo.kind == GIT_NONE)
		return error_set(err, ERR_CONFLICT,
				 "%s was a git repository and is none now: what the run did is "
				 "kept, put its .git back and collect again",
				 path);
	if (!git_place_wrote(fetched_fd)) {
		keep_as_staged(&im);
		*report = make_report(&im);
		return git_quarantine_clean(&repo, run_id, err);
	}
	repo.seen = seen;
	if (git_quarantine_open(&repo, run_id, git_about_is_sha256(about), &im.q, err) < 0 ||
	    git_place_read(&im.q, fetched_fd, about, true, &im.place, &im.why, &im.index_why, err) <
		    0)
		return -1;
	if (!im.why && (choose_tips(&im, err) < 0 || import_objects(&im, err) < 0))
		return -1;
	if (!im.why && write_refs(&im, err) < 0)
		return -1;
	if (git_quarantine_remove(&im.q, err) < 0)
		return -1;
	*report = make_report(&im);
	return 0;
}
