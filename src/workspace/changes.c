/* What a run changed, with what became of it, from the manifests and the journal. */
#include <errno.h>
#include <string.h>
#include "base/fd.h"
#include "workspace/apply_internal.h"

void change_base(const struct manifest *base, const struct tree_entry *entry,
		 struct tree_entry *out)
{
	memset(out, 0, sizeof(*out));
	if (!base || !manifest_find(base, entry->path, entry->path_len, out))
		memset(out, 0, sizeof(*out));
}

enum change_kind change_kind_of(const struct tree_entry *base, const struct tree_entry *place)
{
	if (place->type == TREE_NONE)
		return CHANGE_DELETED;
	if (base->type == TREE_NONE)
		return CHANGE_ADDED;
	if (base->type != place->type)
		return CHANGE_TYPE;
	if (place->type == TREE_FILE && base->size == place->size &&
	    (base->flags & place->flags & TREE_HAS_HASH) &&
	    memcmp(base->sha256, place->sha256, TREE_HASH_SIZE) == 0)
		return CHANGE_MODE;
	return CHANGE_MODIFIED;
}

const char *change_kind_name(enum change_kind kind)
{
	static const char *const names[] = {
#define X(name, text) [name] = text,
		CHANGE_KINDS(X)
#undef X
	};

	return names[kind];
}

const char *change_fate_name(enum change_fate fate)
{
	static const char *const names[] = {
#define X(name, text) [name] = text,
		CHANGE_FATES(X)
#undef X
	};

	return names[fate];
}

bool change_is_of_directory(const struct change *change)
{
	if (change->kind == CHANGE_TYPE)
		return false;
	return change->entry.type == TREE_DIR ||
	       (change->entry.type == TREE_NONE && change->was == TREE_DIR);
}

void apply_count(struct apply_report *r, const struct change *change)
{
	bool directory = change_is_of_directory(change);
	bool applied = change->fate == FATE_APPLIED && !directory;

	r->directories += directory && change->fate == FATE_APPLIED;
	r->same += change->fate == FATE_SAME;
	r->conflicts += change->fate == FATE_CONFLICT;
	r->kept_host += change->fate == FATE_KEPT_HOST;
	r->held += change->fate == FATE_HELD;
	r->runs += change->runs != NULL && change->fate != FATE_SAME;
	r->refused += change->fate == FATE_REFUSED;
	r->added += applied && change->kind == CHANGE_ADDED;
	r->deleted += applied && change->kind == CHANGE_DELETED;
	r->modified += applied && change->kind != CHANGE_ADDED && change->kind != CHANGE_DELETED;
	if ((applied || change->fate == FATE_CONFLICT || change->fate == FATE_HELD) &&
	    change->entry.type == TREE_FILE && change->kind != CHANGE_MODE)
		r->bytes += change->entry.size;
}

int changes_walk(const struct manifest *base, const struct manifest *changes,
		 const struct journal *journal, change_fn *fn, void *arg, struct error *err)
{
	struct manifest_cursor cursor = { .m = changes };
	struct journal_outcome outcome;
	struct tree_entry entry, before;

	for (uint32_t number = 0; manifest_next(&cursor, &entry); number++) {
		struct change change = { .entry = entry, .fate = FATE_PENDING };

		change_base(base, &entry, &before);
		change.kind = change_kind_of(&before, &entry);
		change.was = before.type;
		change.runs = change_runs(base, changes, &entry);
		if (journal_outcome(journal, number, &outcome)) {
			change.fate = (enum change_fate)outcome.fate;
			change.beside = outcome.beside;
			change.reason = outcome.reason;
		}
		if (fn(arg, &change, err) < 0)
			return -1;
	}
	return 0;
}

int changes_open(const struct results *results, const char *run_id, struct changes_view *out,
		 struct error *err)
{
	*out = (struct changes_view){ .run_fd = -1 };
	if (results_dir(results, run_id, false, &out->run_fd, err) < 0)
		return -1;
	if (manifest_open(out->run_fd, RESULTS_CHANGES, &out->changes, err) < 0) {
		if (err && err->errnum == ENOENT)
			error_set(err, ERR_CONFLICT,
				  "the files of run %s have not been fetched from its place yet",
				  run_id);
		return -1;
	}
	if (manifest_open(out->run_fd, RESULTS_BASE, &out->base, err) < 0)
		return -1;
	return journal_open(out->run_fd, (uint32_t)manifest_count(out->changes), false,
			    &out->journal, err);
}

void changes_close(struct changes_view *view)
{
	journal_close(view->journal);
	manifest_close(view->base);
	manifest_close(view->changes);
	close_fdp(&view->run_fd);
}

int results_changes(const struct results *results, const char *run_id, change_fn *fn, void *arg,
		    struct error *err)
{
	_cleanup_(changes_close) struct changes_view view = { .run_fd = -1 };

	if (changes_open(results, run_id, &view, err) < 0)
		return -1;
	return changes_walk(view.base, view.changes, view.journal, fn, arg, err);
}
