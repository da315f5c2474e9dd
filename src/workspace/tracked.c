#include <string.h>
#include "base/mem.h"
#include "workspace/git_cli.h"
#include "workspace/stage_parts.h"

#define TRACKED_MAX ((size_t)32 << 20)

static int by_tree(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;

	return tree_path_compare(x, strlen(x), y, strlen(y));
}

int tracked_load(struct tracked *t, int root_fd, const char *path, int cancel_fd, struct error *err)
{
	_cleanup_repo_ struct git_repo repo = { 0 };
	struct git_call call = {
		.repo = &repo,
		.args = GIT_ARGS("ls-files", "-z", "--cached", "--ignored", "--exclude-standard"),
		.max_output = TRACKED_MAX,
	};

	*t = (struct tracked){ 0 };
	if (git_repo_find(root_fd, path, cancel_fd, &repo, err) < 0)
		return -1;
	if (repo.kind == GIT_NONE)
		return 0;
	if (git_run(&call, &t->text, NULL, err) < 0)
		return -1;
	for (size_t at = 0; at < t->text.len; at += strlen(t->text.data + at) + 1)
		t->count++;
	t->paths = xcalloc(t->count + 1, sizeof(*t->paths));

	const char *p = buf_str(&t->text);

	for (size_t i = 0; i < t->count; i++, p += strlen(p) + 1)
		t->paths[i] = p;
	if (t->count > 1)
		qsort(t->paths, t->count, sizeof(*t->paths), by_tree);
	return 0;
}

/* The first one not before the path is the path itself or in it, if any is. */
bool tracked_keeps(void *arg, const char *path, size_t len)
{
	const struct tracked *t = arg;
	size_t low = 0, high = t->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const char *p = t->paths[middle];

		if (tree_path_compare(p, strlen(p), path, len) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < t->count &&
	       tree_path_is_within(t->paths[low], strlen(t->paths[low]), path, len);
}

void tracked_free(struct tracked *t)
{
	buf_free(&t->text);
	free(t->paths);
	*t = (struct tracked){ 0 };
}
