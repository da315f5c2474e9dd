/*
 * How long results of runs are kept: a week once they are in the workspace, a month as long as they
 * are not, and never shorter than that, whatever history is pruned. A run or lease stays as long as
 * its results: they would be unexplained without it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include "base/fd.h"
#include "base/text.h"
#include "run/files.h"
#include "run/row.h"

#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define APPLIED_KEPT_MS (7 * DAY_MS)
#define UNAPPLIED_KEPT_MS (30 * DAY_MS)

SQL(FILES_OF_RUN, "SELECT COALESCE(finished_at, 0) FROM runs WHERE id = $1");
SQL(FILES_OF_PLACE, "SELECT state FROM places WHERE id = $1");
SQL(FILES_OF_LEASE, "SELECT COALESCE(released_at, 0) FROM leases WHERE id = $1");

struct kept {
	enum { KEEP_NOTHING, KEEP_RECORD, KEEP_APPLIED, KEEP_UNAPPLIED } what;
	int64_t applied_at; /* 0: unknown */
};

static struct kept what_is_kept(struct runs *runs, const char *id)
{
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	_cleanup_error_ struct error err = { 0 };

	if (!runs->engine)
		return (struct kept){ KEEP_NOTHING, 0 };
	if (workspace_state_load(&runs->engine->results, id, &state, &err) < 0)
		return (struct kept){ err.code == ERR_NOT_FOUND ? KEEP_NOTHING : KEEP_UNAPPLIED,
				      0 };
	/* A directory that was used where it is has no results and no displaced files. */
	if (state.phase < PHASE_STAGED || state.mode == MODE_IN_PLACE)
		return (struct kept){ KEEP_RECORD, 0 };
	return (struct kept){ state.phase == PHASE_APPLIED ? KEEP_APPLIED : KEEP_UNAPPLIED,
			      state.applied_at };
}

/* Whether it has been kept long enough, for a run or lease that ended then. */
static bool kept_long_enough(const struct runs *runs, const struct kept *kept, int64_t ended_at)
{
	int64_t now = clock_now(runs->clock);

	if (kept->what == KEEP_UNAPPLIED)
		return ended_at < now - UNAPPLIED_KEPT_MS;
	return MAX_OF(ended_at, kept->applied_at) < now - APPLIED_KEPT_MS;
}

bool runs_files_hold_back(struct runs *runs, const char *id, int64_t finished_at)
{
	struct kept kept = what_is_kept(runs, id);

	return (kept.what == KEEP_APPLIED || kept.what == KEEP_UNAPPLIED) &&
	       !kept_long_enough(runs, &kept, finished_at);
}

bool runs_hold_lease(void *runs, const char *lease_id, int64_t released_at)
{
	return runs_files_hold_back(runs, lease_id, released_at);
}

int runs_drop_results(struct runs *runs, const char *id, struct error *err)
{
	if (!runs->engine || what_is_kept(runs, id).what == KEEP_NOTHING)
		return 0;
	return workspace_drop(runs->engine, id, err);
}

struct owner {
	const char *id;
	bool known;
	int64_t ended_at; /* 0: it goes on */
};

static int find_owner_in(struct tx *tx, const struct sql *sql, struct owner *owner,
			 struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r = tx_query(tx, &c, sql, err, B_TEXT(owner->id));

	if (r < 0 || (r = cursor_next(&c, err)) <= 0)
		return r;
	owner->known = true;
	owner->ended_at = col_int(&c, 0);
	return 1;
}

static int find_owner(struct tx *tx, void *arg, struct error *err)
{
	struct owner *owner = arg;
	int r = find_owner_in(tx, &FILES_OF_RUN, owner, err);

	if (r == 0)
		r = find_owner_in(tx, &FILES_OF_LEASE, owner, err);
	return r < 0 ? -1 : 0;
}

/* ---- trees in places that are gone ---- */

struct place_look {
	const char *id;
	bool gone;
};

static int look_at_place(struct tx *tx, void *arg, struct error *err)
{
	struct place_look *look = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int found;

	if (tx_query(tx, &c, &FILES_OF_PLACE, err, B_TEXT(look->id)) < 0)
		return -1;
	found = cursor_next(&c, err);
	look->gone = found == 0 || (found > 0 && str_equal(col_text(&c, 0), "gone"));
	return found < 0 ? -1 : 0;
}

static void closedirp(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

/* What the engine remembers of trees that it has put into places. */
static int forget_places(struct runs *runs, struct error *err)
{
	int fd =
		openat(runs->engine->results.root_fd, "places", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closedirp) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		close_fdp(&fd);
		return errno == ENOENT ? 0 : error_errno(err, errno, "workspaces/places");
	}
	while ((entry = readdir(dir))) {
		struct place_look look = { .id = entry->d_name };

		if (!id_is_valid(entry->d_name))
			continue;
		if (db_read(runs->db, look_at_place, &look, err) < 0 ||
		    (look.gone && workspace_forget_place(runs->engine, look.id, err) < 0))
			return -1;
	}
	return 0;
}

int64_t runs_prune_files(struct runs *runs, bool dry_run, struct error *err)
{
	_cleanup_strv_ char **ids = NULL;
	int64_t count = 0;

	if (!runs->engine)
		return 0;
	if (results_list(&runs->engine->results, &ids, err) < 0 ||
	    (!dry_run && forget_places(runs, err) < 0))
		return -1;
	for (char **id = ids; id && *id; id++) {
		struct owner owner = { .id = *id };
		struct kept kept = what_is_kept(runs, *id);

		if (db_read(runs->db, find_owner, &owner, err) < 0)
			return -1;
		if (!owner.known || owner.ended_at <= 0 ||
		    !kept_long_enough(runs, &kept, owner.ended_at))
			continue;
		if (!dry_run && workspace_drop(runs->engine, *id, err) < 0)
			return -1;
		if (!dry_run && run_set_dropped(runs->db, runs->clock, *id, err) < 0)
			return -1;
		count++;
	}
	return count;
}

int runs_audit_files(struct runs *runs, json_t *list, struct error *err)
{
	_cleanup_strv_ char **ids = NULL;

	if (!runs->engine)
		return 0;
	if (results_list(&runs->engine->results, &ids, err) < 0)
		return -1;
	for (char **id = ids; id && *id; id++) {
		struct owner owner = { .id = *id };
		json_t *entry;

		if (db_read(runs->db, find_owner, &owner, err) < 0)
			return -1;
		if (owner.known)
			continue;
		entry = json_object();
		json_put_str(entry, "kind", "workspace");
		json_put_str(entry, "id", *id);
		json_put_str(entry, "where", "workspaces");
		json_put_str(entry, "reason",
			     "results of a run or a lease that no longer exists: look at the "
			     "directory and remove it");
		json_put_time(entry, "since", 0);
		json_array_append_new(list, entry);
	}
	return 0;
}
