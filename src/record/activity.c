#include "record/activity.h"

#include <string.h>
#include "record/event.h"
#include "record/redact.h"
#include "record/row.h"

#define ACTIVITY_LIMIT_MAX 500
#define DETAILS_MAX_BYTES ((size_t)32768)
#define PRUNE_ROWS 500

#define ACTIVITY_COLUMNS                                                                           \
	"id, seq, company_id, actor_type, actor_id, action, entity_type, entity_id, agent_id,"     \
	" run_id, details, created_at"

SQL(ACTIVITY_INSERT, "INSERT INTO activity (" ACTIVITY_COLUMNS ")"
		     " VALUES ($1, " EVENT_NUMBER ", $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)");
SQL(ACTIVITY_OF_COMPANY, "SELECT " ACTIVITY_COLUMNS " FROM activity"
			 " WHERE company_id = $1 AND seq < $2"
			 " AND (CAST($3 AS TEXT) IS NULL OR entity_type = $3)"
			 " AND (CAST($4 AS TEXT) IS NULL OR entity_id = $4)"
			 " ORDER BY seq DESC LIMIT $5");
/* The same when both are known: without the ORs it can go by the entity's own index. */
SQL(ACTIVITY_OF_ENTITY, "SELECT " ACTIVITY_COLUMNS " FROM activity"
			" WHERE company_id = $1 AND seq < $2"
			" AND entity_type = $3 AND entity_id = $4"
			" ORDER BY seq DESC LIMIT $5");
/* The record itself and its runs; its leases follow where leases know of the record. */
#define OF_RECORD(n, type, column)                                                                 \
	" AND (CAST($" n " AS TEXT) IS NULL"                                                       \
	"  OR (entity_type = '" type "' AND entity_id = CAST($" n " AS TEXT))"                     \
	"  OR EXISTS (SELECT 1 FROM runs WHERE runs.id = activity.run_id"                          \
	"   AND runs." column " = CAST($" n " AS TEXT))"
#define OF_LEASE(n, column)                                                                        \
	"  OR (entity_type = 'environment_lease' AND EXISTS (SELECT 1 FROM leases"                 \
	"   WHERE leases.id = activity.entity_id AND leases." column " = CAST($" n " AS TEXT)))"
SQL(ACTIVITY_OF_RECORD,
    "SELECT " ACTIVITY_COLUMNS " FROM activity"
    " WHERE company_id = $1 AND seq < $2"
    " AND (CAST($3 AS TEXT) IS NULL OR entity_type = $3)"
    " AND (CAST($4 AS TEXT) IS NULL OR entity_id = $4)" OF_RECORD("6", "agent", "agent_id")
	    OF_LEASE("6", "agent_id") " OR agent_id = CAST($6 AS TEXT))" OF_RECORD("7", "issue",
										   "issue_id")
		    OF_LEASE("7", "issue_id") ")" OF_RECORD(
			    "8", "project", "project_id") ")" OF_RECORD("9", "environment",
									"environment_id")
			    OF_LEASE("9", "environment_id") ")"
							    " ORDER BY seq DESC LIMIT $5");
/* Entries of a company are old from one end, so looking at that end is enough. */
SQL(ACTIVITY_PRUNE, "WITH oldest AS MATERIALIZED"
		    " (SELECT seq FROM activity WHERE company_id = $1 ORDER BY seq LIMIT 500)"
		    " DELETE FROM activity WHERE seq IN (SELECT seq FROM oldest)"
		    " AND created_at < $2 RETURNING seq");
/* The same without removing: of the 500 behind $2, how many are old and where they end. */
SQL(ACTIVITY_OLD, "SELECT SUM(CASE WHEN created_at < $3 THEN 1 ELSE 0 END), MAX(seq) FROM"
		  " (SELECT seq, created_at FROM activity WHERE company_id = $1 AND seq > $2"
		  " ORDER BY seq LIMIT 500) AS oldest");
SQL(ACTIVITY_COMPANIES, "SELECT id FROM companies WHERE id > $1 ORDER BY id LIMIT 1");

/* Redacted and bounded: details are for reading, not for keeping data in. */
static char *details_column(const json_t *details)
{
	if (!details || json_is_null(details))
		return NULL;

	_cleanup_free_ char *text = redacted_text(details);

	if (strlen(text) > DETAILS_MAX_BYTES)
		return xstrdup("{\"truncated\":true}");
	return steal(text);
}

int activity_write_tx(struct tx *tx, int64_t now, const struct activity *activity,
		      struct error *err)
{
	const struct actor *actor = activity->actor ? activity->actor : &ACTOR_SYSTEM;
	const char *agent = activity->agent_id ? activity->agent_id : actor->agent_id;
	const char *run = activity->run_id ? activity->run_id : actor->run_id;
	_cleanup_free_ char *details = details_column(activity->details);
	char id[ID_SIZE];

	if (event_number_tx(tx, err) < 0)
		return -1;
	id_new(id);
	return tx_exec(tx, &ACTIVITY_INSERT, err, B_TEXT(id), B_TEXT(activity->company_id),
		       B_TEXT(actor->type), B_TEXT(actor->id), B_TEXT(activity->action),
		       B_TEXT(activity->entity_type), B_TEXT(activity->entity_id), B_ID(agent),
		       B_ID(run), B_TEXT(details), B_INT(now)) < 0
		       ? -1
		       : 0;
}

struct activity_write {
	const struct activity *activity;
	int64_t now;
};

static int write_one(struct tx *tx, void *arg, struct error *err)
{
	const struct activity_write *write = arg;

	return activity_write_tx(tx, write->now, write->activity, err);
}

int activity_write(struct db *db, struct clock *clock, const struct activity *activity,
		   struct error *err)
{
	struct activity_write write = { activity, clock_now(clock) };

	return DB_WRITE(db, "activity.write", write_one, &write, err);
}

static int entry_json(struct cursor *c, json_t **out, struct error *err)
{
	json_t *details;

	if (col_json(c, 10, "activity details", &details, err) < 0)
		return -1;
	*out = json_object();
	json_put_str(*out, "id", col_text(c, 0));
	json_put_int(*out, "seq", col_int(c, 1));
	json_put_str(*out, "companyId", col_text(c, 2));
	json_put_str(*out, "actorType", col_text(c, 3));
	json_put_str(*out, "actorId", col_text(c, 4));
	json_put_str(*out, "action", col_text(c, 5));
	json_put_str(*out, "entityType", col_text(c, 6));
	json_put_str(*out, "entityId", col_text(c, 7));
	json_put_str(*out, "agentId", col_text(c, 8));
	json_put_str(*out, "runId", col_text(c, 9));
	json_put_new(*out, "details", details);
	json_put_time(*out, "createdAt", col_int(c, 11));
	return 0;
}

struct activity_page {
	const struct activity_query *query;
	int64_t limit, before;
	json_t *items;
	int64_t last_seq;
	bool more;
};

static int query_page(struct tx *tx, const struct activity_page *page, struct cursor *c,
		      struct error *err)
{
	const struct activity_query *q = page->query;
	const struct sql *sql =
		q->entity_type && q->entity_id ? &ACTIVITY_OF_ENTITY : &ACTIVITY_OF_COMPANY;

	if (q->agent_id || q->issue_id || q->project_id || q->environment_id)
		return tx_query(tx, c, &ACTIVITY_OF_RECORD, err, B_TEXT(q->company_id),
				B_INT(page->before), B_TEXT(q->entity_type), B_TEXT(q->entity_id),
				B_INT(page->limit + 1), B_TEXT(q->agent_id), B_TEXT(q->issue_id),
				B_TEXT(q->project_id), B_TEXT(q->environment_id));
	return tx_query(tx, c, sql, err, B_TEXT(q->company_id), B_INT(page->before),
			B_TEXT(q->entity_type), B_TEXT(q->entity_id), B_INT(page->limit + 1));
}

static int read_page(struct tx *tx, void *arg, struct error *err)
{
	struct activity_page *page = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int64_t n = 0;
	int r;

	json_array_clear(page->items);
	page->more = false;
	if (query_page(tx, page, &c, err) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		json_t *entry;

		if (n++ == page->limit) {
			page->more = true;
			return 0;
		}
		if (entry_json(&c, &entry, err) < 0)
			return -1;
		json_array_append_new(page->items, entry);
		page->last_seq = col_int(&c, 1);
	}
	return r;
}

json_t *activity_list(struct db *db, const struct activity_query *query, struct error *err)
{
	_cleanup_json_ json_t *items = json_array();
	_cleanup_free_ char *cursor = NULL;
	struct activity_page page = {
		.query = query,
		.limit = MIN_OF(MAX_OF(query->limit, 1), ACTIVITY_LIMIT_MAX),
		.before = query->before_seq > 0 ? query->before_seq : INT64_MAX,
		.items = items,
	};

	if (db_read(db, read_page, &page, err) < 0)
		return NULL;
	if (page.more)
		cursor = xasprintf("%lld", (long long)page.last_seq);

	json_t *answer = json_object();

	json_put_ref(answer, "items", items);
	json_put_str(answer, "nextCursor", cursor);
	return answer;
}

struct activity_pruning {
	char company_id[ID_SIZE];
	int64_t before;
	int64_t removed;
	bool found;
};

static int next_company(struct tx *tx, void *arg, struct error *err)
{
	struct activity_pruning *pruning = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &ACTIVITY_COMPANIES, err, B_TEXT(pruning->company_id)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	pruning->found = r > 0;
	if (r > 0)
		id_copy(pruning->company_id, col_text(&c, 0));
	return r < 0 ? -1 : 0;
}

/* Entries are events too: those who read them are told how far they are gone. */
static int prune_some(struct tx *tx, void *arg, struct error *err)
{
	struct activity_pruning *pruning = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int64_t highest = 0;
	int r;

	pruning->removed = 0;
	if (tx_query(tx, &c, &ACTIVITY_PRUNE, err, B_TEXT(pruning->company_id),
		     B_INT(pruning->before)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		pruning->removed++;
		highest = MAX_OF(highest, col_int(&c, 0));
	}
	cursor_close(&c);
	if (r < 0 || highest == 0)
		return r;
	return event_raise_floor_tx(tx, pruning->company_id, highest, err);
}

int64_t activity_prune(struct db *db, int64_t before_ms, struct error *err)
{
	struct activity_pruning pruning = { .before = before_ms };
	int64_t total = 0;

	for (;;) {
		if (db_read(db, next_company, &pruning, err) < 0)
			return -1;
		if (!pruning.found)
			return total;
		/* In small steps: other writers wait behind each of them. */
		do {
			if (DB_WRITE(db, "activity.prune", prune_some, &pruning, err) < 0)
				return -1;
			total += pruning.removed;
		} while (pruning.removed == PRUNE_ROWS);
	}
}

struct activity_counting {
	struct activity_pruning *of;
	int64_t from, old;
};

static int count_some(struct tx *tx, void *arg, struct error *err)
{
	struct activity_counting *counting = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &ACTIVITY_OLD, err, B_TEXT(counting->of->company_id),
		     B_INT(counting->from), B_INT(counting->of->before)) < 0 ||
	    cursor_next(&c, err) < 0)
		return -1;
	counting->old = col_int(&c, 0);
	counting->from = col_int(&c, 1);
	return 0;
}

/* Step by step as pruning goes, so that it looks at what is old and not at all there is. */
int64_t activity_old(struct db *db, int64_t before_ms, struct error *err)
{
	struct activity_pruning pruning = { .before = before_ms };
	int64_t total = 0;

	for (;;) {
		struct activity_counting counting = { .of = &pruning };

		if (db_read(db, next_company, &pruning, err) < 0)
			return -1;
		if (!pruning.found)
			return total;
		do {
			if (db_read(db, count_some, &counting, err) < 0)
				return -1;
			total += counting.old;
		} while (counting.old == PRUNE_ROWS);
	}
}
