#include "record/environment.h"

#include "record/activity.h"
#include "record/row.h"
#include "record/selection.h"

/* One transaction looks for what still needs the environment and deletes it, so that nothing can
 * come to need it in between. */

/* In the order of BLOCKERS. */
SQL(ENVIRONMENT_BLOCKERS,
    "SELECT"
    " (SELECT COUNT(*) FROM leases WHERE environment_id = $1 AND status = 'active'"
    "  AND " LEASES_OPEN "),"
    " (SELECT COUNT(*) FROM leases WHERE environment_id = $1 AND status = 'retained'"
    "  AND " LEASES_OPEN "),"
    " (SELECT COUNT(*) FROM leases WHERE environment_id = $1 AND status = 'pending_cleanup'"
    "  AND " LEASES_OPEN "),"
    " (SELECT COUNT(*) FROM places WHERE environment_id = $1 AND state <> 'gone'),"
    " (SELECT COUNT(*) FROM intents WHERE environment_id = $1),"
    " (SELECT COUNT(*) FROM runs WHERE company_id = $2 AND environment_id = $1"
    " AND status IN ('queued', 'running', 'scheduled_retry'))");
SQL(ENVIRONMENT_DELETE, "DELETE FROM environments WHERE id = $1");

static const struct {
	const char *reason, *key, *words, *cure;
} BLOCKERS[] = {
	{ "active_leases", "activeLeases", "active leases", "release them (berth lease release)" },
	{ "retained_leases", "retainedLeases", "retained leases",
	  "destroy them (berth lease destroy)" },
	{ "pending_cleanup_leases", "pendingCleanupLeases", "leases waiting for cleanup",
	  "wait for the cleanup (berth audit shows what it waits for)" },
	{ "live_places", "livePlaces", "places that exist", NULL },
	{ "open_intents", "openIntents", "places being made", "wait until they are made" },
	{ "unfinished_runs", "unfinishedRuns", "unfinished runs",
	  "cancel them (berth cancel) or wait for their end" },
};

static int read_blockers(struct tx *tx, const struct environment *row,
			 int64_t counts[static ARRAY_SIZE(BLOCKERS)], struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &ENVIRONMENT_BLOCKERS, err, B_TEXT(row->id), B_TEXT(row->company_id)) <
		    0 ||
	    cursor_next(&c, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(BLOCKERS); i++)
		counts[i] = col_int(&c, (int)i);
	return 0;
}

static int refuse(const struct environment *row, const int64_t *counts, json_t *reasons,
		  struct error *err)
{
	_cleanup_json_ json_t *details = json_object();
	_cleanup_buf_ struct buf why = { 0 }, cures = { 0 };

	json_put_ref(details, "deleteBlockedReasons", reasons);
	if (row->driver == DRIVER_LOCAL)
		buf_puts(&why, "it is the company's Local environment");
	for (size_t i = 0; i < ARRAY_SIZE(BLOCKERS); i++) {
		json_put_int(details, BLOCKERS[i].key, counts[i]);
		if (counts[i] <= 0)
			continue;
		buf_printf(&why, "%s%lld %s", why.len ? ", " : "", (long long)counts[i],
			   BLOCKERS[i].words);
		if (BLOCKERS[i].cure && row->driver != DRIVER_LOCAL)
			buf_printf(&cures, "%s%s",
				   cures.len ? "; " : ". To delete it: ", BLOCKERS[i].cure);
	}
	error_set(err, ERR_ENVIRONMENT_IN_USE, "Environment \"%s\" is in use: %s%s", row->name,
		  buf_str(&why), buf_str(&cures));
	error_set_details(err, json_text(details));
	return -1;
}

static json_t *reasons_against(const struct environment *row, const int64_t *counts)
{
	json_t *reasons = json_array();

	if (row->driver == DRIVER_LOCAL)
		json_array_append_new(reasons, json_string("local_environment"));
	for (size_t i = 0; i < ARRAY_SIZE(BLOCKERS); i++) {
		if (counts[i] > 0)
			json_array_append_new(reasons, json_string(BLOCKERS[i].reason));
	}
	return reasons;
}

static int check_unused(struct tx *tx, const struct environment *row, struct error *err)
{
	int64_t counts[ARRAY_SIZE(BLOCKERS)];
	_cleanup_json_ json_t *reasons = NULL;

	if (read_blockers(tx, row, counts, err) < 0)
		return -1;
	reasons = reasons_against(row, counts);
	return json_array_size(reasons) ? refuse(row, counts, reasons, err) : 0;
}

struct usage_question {
	const char *id;
	json_t *answer;
};

static int read_usage(struct tx *tx, void *arg, struct error *err)
{
	struct usage_question *question = arg;
	_cleanup_environment_ struct environment row = { 0 };
	int64_t counts[ARRAY_SIZE(BLOCKERS)];
	_cleanup_json_ json_t *reasons = NULL;
	json_t *choices;

	json_decref(question->answer);
	question->answer = NULL;
	if (environment_get_tx(tx, question->id, &row, err) < 0 ||
	    read_blockers(tx, &row, counts, err) < 0)
		return -1;
	choices = selection_report_tx(tx, row.company_id, row.id, err);
	if (!choices)
		return -1;
	reasons = reasons_against(&row, counts);
	question->answer = json_object();
	json_put_str(question->answer, "environmentId", row.id);
	json_put_bool(question->answer, "canDelete", json_array_size(reasons) == 0);
	json_put_ref(question->answer, "deleteBlockedReasons", reasons);
	for (size_t i = 0; i < ARRAY_SIZE(BLOCKERS); i++)
		json_put_int(question->answer, BLOCKERS[i].key, counts[i]);
	json_put_new(question->answer, "selectedBy", choices);
	return 0;
}

json_t *environment_usage(struct db *db, const char *id, struct error *err)
{
	struct usage_question question = { .id = id };

	if (db_read(db, read_usage, &question, err) < 0) {
		json_decref(question.answer);
		return NULL;
	}
	return question.answer;
}

static json_t *delete_details(const struct environment *row, const struct selection_counts *counts)
{
	json_t *details = json_object(), *cleared = json_object();

	json_put_str(details, "name", row->name);
	json_put_str(details, "driver", driver_kind_name(row->driver));
	json_put_str(details, "status", environment_status_name(row->status));
	json_put_int(cleared, "agents", counts->agents);
	json_put_int(cleared, "issues", counts->issues);
	json_put_int(cleared, "projects", counts->projects);
	json_put_int(cleared, "executionWorkspaces", counts->workspaces);
	json_put_new(details, "clearedSelections", cleared);
	return details;
}

struct environment_removal {
	const char *id;
	const struct actor *actor;
	int64_t now;
	struct environment row;
};

static int delete_environment(struct tx *tx, void *arg, struct error *err)
{
	struct environment_removal *removal = arg;
	struct environment *row = &removal->row;
	struct selection_counts counts;
	_cleanup_json_ json_t *details = NULL;

	environment_clear(row);
	if (environment_get_tx(tx, removal->id, row, err) < 0 ||
	    environment_changeable(removal->actor, row, err) < 0 || check_unused(tx, row, err) < 0)
		return -1;
	if (selection_clear_tx(tx, removal->now, removal->actor, row->company_id, row->id, &counts,
			       err) < 0)
		return -1;
	if (tx_exec(tx, &ENVIRONMENT_DELETE, err, B_TEXT(row->id)) < 0)
		return -1;
	details = delete_details(row, &counts);
	return activity_write_tx(tx, removal->now,
				 &(struct activity){ .company_id = row->company_id,
						     .actor = removal->actor,
						     .action = "environment.deleted",
						     .entity_type = "environment",
						     .entity_id = row->id,
						     .details = details },
				 err);
}

int environment_delete(struct db *db, struct clock *clock, const struct actor *actor,
		       const char *id, struct environment *removed, struct error *err)
{
	struct environment_removal removal = { .id = id, .actor = actor, .now = clock_now(clock) };
	int r = DB_WRITE(db, "environment.delete", delete_environment, &removal, err);

	if (r == 0)
		hand_over(removed, removal.row);
	environment_clear(&removal.row);
	return r;
}
