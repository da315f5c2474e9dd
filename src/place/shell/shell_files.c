/*
 * Files of a place without a relay, but for their contents: each operation is one call of the
 * script (shell_script.c), a listing two.
 */
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "place/shell/shell_script.h"

#define LIST_MAX 1000
/* Of names in one call: argument lists have an end, in some places an early one. */
#define NAMES_BYTES ((size_t)64 << 10)
#define NAME_BYTES 255

static const char *flag(bool on)
{
	return on ? "1" : "0";
}

static int not_the_root(const struct shell_path *path, struct error *err)
{
	return streq(path->name, ".")
		       ? error_set(err, ERR_BAD_PATH, "this cannot be done to the place's root")
		       : 0;
}

int shell_file_stat(struct open_place *place, const char *path, struct file_info *out,
		    struct error *err)
{
	_cleanup_shell_path_ struct shell_path p = { 0 };
	_cleanup_buf_ struct buf answer = { 0 };
	const struct shell_ask ask = { .verb = "stat", .path = &p };

	if (shell_path_parse(path, &p, err) < 0 || shell_ask(place, &ask, &answer, err) < 0)
		return -1;
	return shell_info_parse(&answer, path, out, err);
}

int shell_file_mkdir(struct open_place *place, const char *path, uint32_t mode, bool parents,
		     struct error *err)
{
	_cleanup_shell_path_ struct shell_path p = { 0 };
	char octal[16];
	const struct shell_ask ask = { .verb = "mkdir",
				       .words = { octal, flag(parents) },
				       .path = &p };

	snprintf(octal, sizeof(octal), "%04o", (unsigned)(mode ? mode : 0755));
	return shell_path_parse(path, &p, err) < 0 ? -1 : shell_ask(place, &ask, NULL, err);
}

int shell_file_rename(struct open_place *place, const char *from, const char *to, bool no_clobber,
		      struct error *err)
{
	_cleanup_shell_path_ struct shell_path a = { 0 };
	_cleanup_shell_path_ struct shell_path b = { 0 };
	char depth[16];
	const struct shell_ask ask = {
		.verb = "rename", .words = { flag(no_clobber), depth }, .path = &a, .path2 = &b
	};

	if (shell_path_parse(from, &a, err) < 0 || shell_path_parse(to, &b, err) < 0 ||
	    not_the_root(&a, err) < 0 || not_the_root(&b, err) < 0)
		return -1;
	snprintf(depth, sizeof(depth), "%zu", strv_len(a.dirs));
	return shell_ask(place, &ask, NULL, err);
}

int shell_file_remove(struct open_place *place, const char *path, bool recursive, struct error *err)
{
	_cleanup_shell_path_ struct shell_path p = { 0 };
	const struct shell_ask ask = { .verb = "remove", .words = { flag(recursive) }, .path = &p };

	if (shell_path_parse(path, &p, err) < 0 || not_the_root(&p, err) < 0)
		return -1;
	return shell_ask(place, &ask, NULL, err);
}

int shell_file_chmod(struct open_place *place, const char *path, uint32_t mode, struct error *err)
{
	_cleanup_shell_path_ struct shell_path p = { 0 };
	char octal[16];
	const struct shell_ask ask = { .verb = "chmod", .words = { octal }, .path = &p };

	snprintf(octal, sizeof(octal), "%04o", (unsigned)mode);
	return shell_path_parse(path, &p, err) < 0 ? -1 : shell_ask(place, &ask, NULL, err);
}

/* Listing: all names first, which are put in order here; then what is known of those of one page.
 */

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Borrowed from the answer, sorted. */
static const char **split_names(const struct buf *answer, size_t *count)
{
	const char *s = buf_str(answer), *end = s + answer->len;
	const char **names;

	*count = 0;
	for (const char *p = s; p < end; p++)
		*count += *p == '\0';
	names = xcalloc(*count + 1, sizeof(*names));
	for (size_t i = 0; i < *count; i++) {
		names[i] = s;
		s += strlen(s) + 1;
	}
	qsort(names, *count, sizeof(*names), by_bytes);
	return names;
}

/* A cursor is the last name that was shown, in hex: it stays true while entries come and go. */
static int parse_cursor(const char *text, char name[NAME_BYTES + 1], struct error *err)
{
	size_t len = text ? strlen(text) / 2 : 0;

	name[0] = '\0';
	if (!len)
		return 0;
	if (len > NAME_BYTES || !hex_decode(name, text, len))
		return error_set(err, ERR_VALIDATION, "this is not a cursor of a listing");
	name[len] = '\0';
	return 0;
}

struct page {
	const char *const *names; /* of the whole directory */
	size_t first, end;        /* of this page */
};

static struct page cut_page(const char *const *names, size_t count, const char *after,
			    int64_t limit)
{
	struct page page = { .names = names };
	size_t most = (size_t)(limit > 0 && limit < LIST_MAX ? limit : LIST_MAX), bytes = 0;

	while (after[0] && page.first < count && strcmp(names[page.first], after) <= 0)
		page.first++;
	page.end = page.first;
	while (page.end < count && page.end - page.first < most && bytes < NAMES_BYTES)
		bytes += strlen(names[page.end++]) + 1;
	return page;
}

/* The links of a page stand behind its lines: "./name\0target\n\0" each. */
static char *find_target(const char *links, const char *end, const char *name)
{
	while (links < end) {
		const char *target = links + strlen(links) + 1;

		if (target >= end)
			break;
		if (str_starts(links, "./") && streq(links + 2, name))
			return xstrndup(target, strlen(target) - (str_ends(target, "\n") ? 1 : 0));
		links = target + strlen(target) + 1;
	}
	return NULL;
}

/*
 * The lines come in the order of the names, each with its own behind it, so that a name cannot pass
 * for a line; one that has no line is gone meanwhile.
 */
static json_t *take_entries(const struct buf *answer, const struct page *page)
{
	const char *s = buf_str(answer), *end = s + answer->len;
	const char *links = s + strlen(s) + 1;
	json_t *entries = json_array();

	for (size_t i = page->first; i < page->end; i++) {
		struct shell_stat st;
		size_t used = s < end ? shell_stat_parse(s, (size_t)(end - s), '/', &st) : 0;
		_cleanup_free_ char *tail = xasprintf("./%s\n", page->names[i]);

		if (!used || !str_starts(s + used, tail))
			continue;
		s += used + strlen(tail);
		st.info.path = xstrdup(page->names[i]);
		if (str_equal(st.info.type, "symlink"))
			st.info.target = find_target(links, end, page->names[i]);
		json_array_append_new(entries, file_info_json(&st.info));
		file_info_clear(&st.info);
	}
	return entries;
}

/* "k" and its k directories, then the names. */
static int ask_entries(struct open_place *place, const struct shell_path *dir,
		       const struct page *page, struct buf *answer, struct error *err)
{
	_cleanup_strv_ char **more = NULL;
	bool is_root = streq(dir->name, ".");
	char depth[16];
	const struct shell_ask ask = { .verb = "entries",
				       .words = { depth },
				       .output_max = ONE_SHOT_OUTPUT_MAX };
	struct shell_ask whole = ask;

	snprintf(depth, sizeof(depth), "%zu", strv_len(dir->dirs) + !is_root);
	for (char *const *d = dir->dirs; d && *d; d++)
		strv_push(&more, xstrdup(*d));
	if (!is_root)
		strv_push(&more, xstrdup(dir->name));
	for (size_t i = page->first; i < page->end; i++)
		strv_push(&more, xstrdup(page->names[i]));
	whole.more = more;
	return shell_ask(place, &whole, answer, err);
}

json_t *shell_file_list(struct open_place *place, const char *path, const char *cursor,
			int64_t limit, struct error *err)
{
	_cleanup_shell_path_ struct shell_path p = { 0 };
	_cleanup_buf_ struct buf all = { 0 };
	_cleanup_buf_ struct buf answer = { 0 };
	_cleanup_free_ const char **names = NULL;
	const struct shell_ask ask = { .verb = "names",
				       .path = &p,
				       .output_max = ONE_SHOT_OUTPUT_MAX };
	char after[NAME_BYTES + 1], next[2 * NAME_BYTES + 1];
	struct page page;
	size_t count;
	json_t *result;

	if (parse_cursor(cursor, after, err) < 0 || shell_path_parse(path, &p, err) < 0 ||
	    shell_ask(place, &ask, &all, err) < 0)
		return NULL;
	names = split_names(&all, &count);
	page = cut_page(names, count, after, limit);
	if (page.end > page.first && ask_entries(place, &p, &page, &answer, err) < 0)
		return NULL;
	result = json_object();
	json_put_new(result, "entries", take_entries(&answer, &page));
	next[0] = '\0';
	if (page.end < count && strlen(names[page.end - 1]) <= NAME_BYTES)
		hex_encode(next, names[page.end - 1], strlen(names[page.end - 1]));
	json_put_str(result, "nextCursor", next[0] ? next : NULL);
	return result;
}
