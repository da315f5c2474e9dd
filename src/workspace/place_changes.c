#include "workspace/place_changes.h"

#include <pthread.h>
#include "base/fd.h"
#include "base/mem.h"

struct place_changes {
	struct place_changes_options options;
	struct manifest_writer *writer;
	struct manifest_cursor cursor;
	struct tree_entry before;
	bool has_before;
	pthread_t thread;
	struct error error;
	int rc;
};

/* A directory's times change with every name in it. */
static bool is_as_before(const struct tree_entry *before, const struct tree_entry *now)
{
	if (before->type != now->type || now->flags & TREE_UNREADABLE)
		return false;
	switch (now->type) {
	case TREE_DIR:
		return before->mode == now->mode;
	case TREE_SYMLINK:
		return tree_entry_same_content(before, now);
	case TREE_FILE:
		return tree_entry_same_state(before, now);
	case TREE_NONE:
	case TREE_SPECIAL:
		break;
	}
	return false;
}

static int note_gone(struct place_changes *d, struct error *err)
{
	struct tree_entry gone = { .path = d->before.path, .path_len = d->before.path_len };

	d->has_before = manifest_next(&d->cursor, &d->before);
	return manifest_add(d->writer, &gone, err);
}

static int compare(void *arg, const struct tree_entry *now, struct error *err)
{
	struct place_changes *d = arg;

	if (d->options.cancel_fd >= 0 && latch_is_set(d->options.cancel_fd))
		return error_set(err, ERR_CANCELLED, "cancelled");
	while (d->has_before) {
		int order = tree_path_compare(d->before.path, d->before.path_len, now->path,
					      now->path_len);

		if (order > 0)
			break;
		if (order == 0) {
			bool same = is_as_before(&d->before, now);

			d->has_before = manifest_next(&d->cursor, &d->before);
			return same ? 0 : manifest_add(d->writer, now, err);
		}
		if (note_gone(d, err) < 0)
			return -1;
	}
	return manifest_add(d->writer, now, err);
}

static int scan(struct place_changes *d, struct error *err)
{
	struct place_scan scan = {
		.root = d->options.root,
		.rules = d->options.rules,
		.rules_len = d->options.rules_len,
	};
	struct error why = { 0 };

	if (place_tree_scan(d->options.place, &scan, compare, d, &why) < 0 &&
	    why.code != ERR_NOT_FOUND) {
		error_move(err, &why);
		return -1;
	}
	error_clear(&why);
	while (d->has_before)
		if (note_gone(d, err) < 0)
			return -1;
	return 0;
}

static void *work(void *arg)
{
	struct place_changes *d = arg;

	d->rc = scan(d, &d->error);
	return NULL;
}

int place_changes_start(const struct place_changes_options *options, struct place_changes **out,
			struct error *err)
{
	struct place_changes *d = xcalloc(1, sizeof(*d));

	d->options = *options;
	d->cursor.m = options->before;
	d->has_before = manifest_next(&d->cursor, &d->before);
	if (manifest_create(options->dir_fd, options->name, &d->writer, err) < 0) {
		free(d);
		return -1;
	}
	manifest_temporary(d->writer);

	int errnum = pthread_create(&d->thread, NULL, work, d);

	if (errnum) {
		manifest_abandon(d->writer);
		free(d);
		return error_errno(err, errnum, "start a thread");
	}
	*out = d;
	return 0;
}

int place_changes_finish(struct place_changes *d, struct error *err)
{
	int rc;

	if (!d)
		return 0;
	pthread_join(d->thread, NULL);
	rc = d->rc;
	if (rc < 0) {
		error_move(err, &d->error);
		manifest_abandon(d->writer);
	} else {
		rc = manifest_commit(d->writer, err);
	}
	error_clear(&d->error);
	free(d);
	return rc;
}

void place_cursor_init(struct place_cursor *c, const struct manifest *before,
		       const struct manifest *drift)
{
	*c = (struct place_cursor){ .before.m = before, .drift.m = drift };
	c->has_old = manifest_next(&c->before, &c->old);
	c->has_new = manifest_next(&c->drift, &c->new);
}

bool place_cursor_next(struct place_cursor *c, struct tree_entry *entry, bool *known)
{
	int order = -1;

	if (!c->has_old && !c->has_new)
		return false;
	if (c->has_new)
		order = c->has_old ? tree_path_compare(c->old.path, c->old.path_len, c->new.path,
						       c->new.path_len)
				   : 1;
	*known = order < 0;
	*entry = order < 0 ? c->old : c->new;
	if (order <= 0)
		c->has_old = manifest_next(&c->before, &c->old);
	if (order >= 0)
		c->has_new = manifest_next(&c->drift, &c->new);
	return true;
}
