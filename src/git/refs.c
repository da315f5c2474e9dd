#include "git/refs.h"

#include <string.h>
#include "base/text.h"
#include "git/cli.h"

#define LIST_MAX (64 << 20)

void git_refs_clear(struct git_refs *refs)
{
	for (size_t i = 0; i < refs->count; i++) {
		free(refs->items[i].name);
		free(refs->items[i].target);
	}
	free(refs->items);
	*refs = (struct git_refs){ 0 };
}

struct git_ref *git_refs_add(struct git_refs *refs, const char *name, size_t len)
{
	if (refs->count >= GIT_REFS_MAX)
		return NULL;
	if (refs->count == refs->cap) {
		refs->cap = refs->cap ? refs->cap * 2 : 64;
		refs->items = xreallocarray(refs->items, refs->cap, sizeof(*refs->items));
	}

	struct git_ref *ref = &refs->items[refs->count++];

	*ref = (struct git_ref){ .name = xstrndup(name, len) };
	return ref;
}

const struct git_ref *git_refs_find(const struct git_refs *refs, const char *name)
{
	for (size_t i = 0; i < refs->count; i++) {
		if (streq(refs->items[i].name, name))
			return &refs->items[i];
	}
	return NULL;
}

static bool component_is_valid(const char *text, size_t len)
{
	return len > 0 && len <= 250 && text[0] != '.' && text[len - 1] != '.' &&
	       !(len >= 5 && memcmp(text + len - 5, ".lock", 5) == 0);
}

bool git_ref_is_valid(const char *name, size_t len)
{
	size_t start = 0;

	if (len > GIT_REF_MAX || len < 6 || memcmp(name, "refs/", 5) != 0)
		return false;
	for (size_t i = 0; i <= len; i++) {
		unsigned char c = i < len ? (unsigned char)name[i] : '/';

		if (c == '/') {
			if (!component_is_valid(name + start, i - start))
				return false;
			start = i + 1;
			continue;
		}
		if (c <= ' ' || c == 0x7f || strchr("~^:?*[\\", c))
			return false;
		if (i + 1 < len && c == '.' && name[i + 1] == '.')
			return false;
		if (i + 1 < len && c == '@' && name[i + 1] == '{')
			return false;
	}
	return true;
}

bool git_oid_is_valid(const char *text, size_t len, bool sha256)
{
	bool some = false;

	if (len != (sha256 ? 64u : 40u))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
			return false;
		some = some || text[i] != '0';
	}
	return some; /* all zeros mean "no object" to git */
}

bool git_ref_parse(const char *text, size_t len, bool sha256, char oid[GIT_OID_MAX],
		   char target[GIT_REF_MAX + 1])
{
	oid[0] = target[0] = '\0';
	if (len && text[len - 1] == '\n')
		len--;
	if (git_oid_is_valid(text, len, sha256)) {
		memcpy(oid, text, len);
		oid[len] = '\0';
		return true;
	}
	if (len > 5 && memcmp(text, "ref: ", 5) == 0 && git_ref_is_valid(text + 5, len - 5)) {
		memcpy(target, text + 5, len - 5);
		target[len - 5] = '\0';
		return true;
	}
	return false;
}

static int bad_packed(struct error *err, size_t line, const char *what)
{
	return error_set(err, ERR_UNPROCESSABLE, "packed-refs, line %zu: %s", line, what);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct git_ref *)a)->name, ((const struct git_ref *)b)->name);
}

/* `known` are the refs before this file, sorted for the search. */
static int take_packed_line(const char *line, size_t len, bool sha256, const struct git_refs *known,
			    struct git_refs *refs, size_t number, struct error *err)
{
	size_t hex = sha256 ? 64 : 40;

	if (len < hex + 2 || line[hex] != ' ' || !git_oid_is_valid(line, hex, sha256))
		return bad_packed(err, number, "no object's name and ref");
	if (!git_ref_is_valid(line + hex + 1, len - hex - 1))
		return bad_packed(err, number, "no valid name of a ref");

	_cleanup_free_ char *name = xstrndup(line + hex + 1, len - hex - 1);
	struct git_ref key = { .name = name };

	if (known->count && bsearch(&key, known->items, known->count, sizeof(key), compare_names))
		return 0;

	struct git_ref *ref = git_refs_add(refs, name, len - hex - 1);

	if (!ref)
		return bad_packed(err, number, "too many refs");
	memcpy(ref->oid, line, hex);
	ref->oid[hex] = '\0';
	return 0;
}

int git_packed_parse(const char *text, size_t len, bool sha256, struct git_refs *refs,
		     struct error *err)
{
	_cleanup_(git_refs_clear) struct git_refs found = { 0 };
	size_t number = 0;

	if (refs->count)
		qsort(refs->items, refs->count, sizeof(*refs->items), compare_names);
	for (size_t at = 0; at < len;) {
		const char *line = text + at, *end = memchr(line, '\n', len - at);
		size_t n = end ? (size_t)(end - line) : len - at;

		at += n + 1;
		number++;
		/* Comments, and what a tag above points at: git can find that out itself. */
		if (n && (line[0] == '#' || line[0] == '^'))
			continue;
		if (take_packed_line(line, n, sha256, refs, &found, number, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < found.count; i++) {
		struct git_ref *ref =
			git_refs_add(refs, found.items[i].name, strlen(found.items[i].name));

		if (!ref)
			return bad_packed(err, number, "too many refs");
		memcpy(ref->oid, found.items[i].oid, sizeof(ref->oid));
	}
	return 0;
}

bool git_ref_is_ours(const char *name)
{
	return str_starts(name, "refs/berth/") || str_starts(name, "refs/berth-branches/") ||
	       str_starts(name, "refs/berth-tags/") || str_starts(name, "refs/berth-refs/");
}

/* "<oid> <name> <target>": names hold no blanks. */
static int take_listed(char *line, bool sha256, struct git_refs *refs, struct error *err)
{
	char *name = strchr(line, ' '), *target = name ? strchr(name + 1, ' ') : NULL;

	if (!target)
		return error_set(err, ERR_UNPROCESSABLE, "git for-each-ref: unexpected line");
	*name++ = '\0';
	*target++ = '\0';
	if (git_ref_is_ours(name) || !git_ref_is_valid(name, strlen(name)) ||
	    !git_oid_is_valid(line, strlen(line), sha256))
		return 0;

	struct git_ref *ref = git_refs_add(refs, name, strlen(name));

	if (!ref)
		return error_set(err, ERR_UNPROCESSABLE,
				 "the repository has more than %d refs; use mode in_place",
				 GIT_REFS_MAX);
	memcpy(ref->oid, line, strlen(line) + 1);
	if (*target)
		ref->target = xstrdup(target);
	return 0;
}

static int list_refs(const struct git_repo *repo, const char *pattern, bool sha256,
		     struct git_refs *refs, struct error *err)
{
	struct git_call call = {
		.repo = repo,
		.args = GIT_ARGS("for-each-ref", "--format=%(objectname) %(refname) %(symref)",
				 pattern),
		.max_output = LIST_MAX,
	};
	_cleanup_buf_ struct buf list = { 0 };

	if (git_run(&call, &list, NULL, err) < 0)
		return error_wrap(err, "refs of %s", repo->path);
	for (char *line = list.data, *end; line && *line; line = end + 1) {
		end = strchr(line, '\n');
		if (!end)
			break;
		*end = '\0';
		if (take_listed(line, sha256, refs, err) < 0)
			return -1;
	}
	return 0;
}

int git_host_refs(const struct git_repo *repo, bool sha256, struct git_refs *refs,
		  struct error *err)
{
	return list_refs(repo, "refs/", sha256, refs, err);
}

/* Refs that each worktree has of its own. */
static bool is_of_worktree(const char *name)
{
	return str_starts(name, "refs/bisect/") || str_starts(name, "refs/worktree/") ||
	       str_starts(name, "refs/rewritten/");
}

/* "<oid> <name>" of packed-refs; "" when it is not there. */
static void find_packed(const struct buf *text, const char *name, bool sha256,
			char oid[GIT_OID_MAX])
{
	size_t hex = sha256 ? 64 : 40, len = strlen(name);

	oid[0] = '\0';
	for (size_t at = 0; at < text->len;) {
		const char *line = text->data + at, *end = memchr(line, '\n', text->len - at);
		size_t n = end ? (size_t)(end - line) : text->len - at;

		at += n + 1;
		if (n != hex + 1 + len || line[hex] != ' ' ||
		    memcmp(line + hex + 1, name, len) != 0 || !git_oid_is_valid(line, hex, sha256))
			continue;
		memcpy(oid, line, hex);
		oid[hex] = '\0';
		return;
	}
}

/*
 * A branch from its own file, else from packed-refs: git takes a ref out of its file only after it
 * is in packed-refs. False: it is not as plain as that, and git is to be asked.
 */
static bool read_branch(const struct git_repo *repo, const char *name, bool sha256,
			char oid[GIT_OID_MAX])
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_error_ struct error none = { 0 };
	char target[GIT_REF_MAX + 1];
	bool there;

	if (is_of_worktree(name) || git_ref_is_ours(name) ||
	    git_read_file(repo, repo->common_dir, name, GIT_REF_FILE_MAX, &text, &there, &none) < 0)
		return false;
	if (there)
		return git_ref_parse(buf_str(&text), text.len, sha256, oid, target) && oid[0];
	if (git_read_file(repo, repo->common_dir, "packed-refs", GIT_PACKED_MAX, &text, &there,
			  &none) < 0)
		return false;
	find_packed(&text, name, sha256, oid);
	return true;
}

int git_head_read(const struct git_repo *repo, bool sha256, struct git_head *out, struct error *err)
{
	_cleanup_(git_refs_clear) struct git_refs found = { 0 };
	_cleanup_buf_ struct buf text = { 0 };
	bool there;

	if (git_read_file(repo, repo->git_dir, "HEAD", GIT_REF_FILE_MAX, &text, &there, err) < 0)
		return -1;
	if (!there || !git_ref_parse(buf_str(&text), text.len, sha256, out->oid, out->ref))
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s/HEAD is not what git writes there; see git fsck",
				 repo->git_dir);
	if (!out->ref[0])
		return 0;
	if (!utf8_valid(out->ref, strlen(out->ref)))
		return error_set(
			err, ERR_UNPROCESSABLE,
			"the name of the branch that is checked out is no UTF-8; rename it "
			"with git branch -m");
	if (read_branch(repo, out->ref, sha256, out->oid))
		return 0;
	out->oid[0] = '\0';
	if (list_refs(repo, out->ref, sha256, &found, err) < 0)
		return -1;

	const struct git_ref *ref = git_refs_find(&found, out->ref);

	if (ref)
		memcpy(out->oid, ref->oid, sizeof(out->oid));
	return 0;
}
