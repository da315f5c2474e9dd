#include "record/event.h"

#include <string.h>
#include "base/text.h"
#include "record/row.h"

/* Whoever takes a number holds the counter's row until it commits. */
SQL(EVENT_TAKE_NUMBER, "UPDATE counters SET value = value + 1 WHERE name = 'activity'");
SQL(EVENT_INSERT, "INSERT INTO events (seq, company_id, type, run_id, payload, created_at)"
		  " VALUES (" EVENT_NUMBER ", $1, $2, $3, $4, $5)");
SQL(EVENT_NOW, "SELECT value FROM counters WHERE name = 'activity'");
SQL(EVENT_FLOOR, "SELECT seq FROM event_floors WHERE company_id = $1");
SQL(EVENT_RAISE_FLOOR,
    "INSERT INTO event_floors (company_id, seq) VALUES ($1, $2)"
    " ON CONFLICT (company_id) DO UPDATE SET seq = CASE"
    " WHEN event_floors.seq < excluded.seq THEN excluded.seq ELSE event_floors.seq END");
SQL(EVENT_AFTER, "SELECT seq, created_at, type, payload FROM events"
		 " WHERE company_id = $1 AND seq > $2 ORDER BY seq LIMIT $3");
SQL(EVENT_ACTIVITY_AFTER,
    "SELECT seq, created_at, actor_type, actor_id, action, entity_type, entity_id, agent_id,"
    " run_id, details FROM activity WHERE company_id = $1 AND seq > $2 ORDER BY seq LIMIT $3");
SQL(EVENT_OF_RUN, "SELECT seq, created_at, type, payload FROM events"
		  " WHERE run_id IS NOT NULL AND run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3");
static const char *const NAMES[] = {
#define X(name, wire) [name] = wire,
	EVENT_TYPES(X)
#undef X
};

const char *event_type_name(enum event_type type)
{
	return NAMES[type];
}

bool event_type_parse(const char *name, enum event_type *type)
{
	for (size_t i = 0; i < ARRAY_SIZE(NAMES); i++) {
		if (!streq(NAMES[i], name))
			continue;
		*type = (enum event_type)i;
		return true;
	}
	return false;
}

/* The number in the first column of the first row; `fallback` without one. */
static int number_tx(struct tx *tx, const struct sql *sql, const struct bind *binds,
		     int64_t fallback, int64_t *out, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query_(tx, &c, sql, binds, err) < 0)
		return -1;

	int r = cursor_next(&c, err);

	if (r < 0)
		return -1;
	*out = r > 0 ? col_int(&c, 0) : fallback;
	return 0;
}

int event_number_tx(struct tx *tx, struct error *err)
{
	int64_t counters = tx_exec(tx, &EVENT_TAKE_NUMBER, err);

	if (counters < 0)
		return -1;
	return counters == 0 ? error_set(err, ERR_DB, "the activity counter is missing") : 0;
}

int event_write_tx(struct tx *tx, int64_t now, const struct event *event, struct error *err)
{
	_cleanup_free_ char *payload = json_text(event->payload);

	if (event_number_tx(tx, err) < 0)
		return -1;
	return tx_exec(tx, &EVENT_INSERT, err, B_TEXT(event->company_id),
		       B_TEXT(event_type_name(event->type)), B_TEXT(event->run_id), B_TEXT(payload),
		       B_INT(now)) < 0
		       ? -1
		       : 0;
}

int event_raise_floor_tx(struct tx *tx, const char *company_id, int64_t seq, struct error *err)
{
	return tx_exec(tx, &EVENT_RAISE_FLOOR, err, B_TEXT(company_id), B_INT(seq)) < 0 ? -1 : 0;
}

/* ---- reading ---- */

static void rows_free(struct event_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(rows[i].payload);
	free(rows);
}

void event_page_clear(struct event_page *page)
{
	rows_free(page->rows, page->count);
	*page = (struct event_page){ 0 };
}

/* The entry's fields but its id, as the reference publishes them. */
static char *activity_payload(struct cursor *c, struct error *err)
{
	_cleanup_json_ json_t *payload = json_object();
	json_t *details;

	if (col_json(c, 9, "activity details", &details, err) < 0)
		return NULL;
	json_put_str(payload, "actorType", col_text(c, 2));
	json_put_str(payload, "actorId", col_text(c, 3));
	json_put_str(payload, "action", col_text(c, 4));
	json_put_str(payload, "entityType", col_text(c, 5));
	json_put_str(payload, "entityId", col_text(c, 6));
	json_put_str(payload, "agentId", col_text(c, 7));
	json_put_str(payload, "runId", col_text(c, 8));
	json_put_new(payload, "details", details);
	return json_text(payload);
}

/* One table's rows after a number. */
struct stretch {
	struct event_row *rows;
	size_t count, size;
};

static void stretch_clear(struct stretch *stretch)
{
	rows_free(stretch->rows, stretch->count);
}

static struct event_row *stretch_add(struct stretch *stretch, struct cursor *c,
				     enum event_type type)
{
	if (stretch->count == stretch->size) {
		stretch->size = stretch->size ? stretch->size * 2 : 8;
		stretch->rows = xreallocarray(stretch->rows, stretch->size, sizeof(*stretch->rows));
	}

	struct event_row *row = &stretch->rows[stretch->count++];

	*row = (struct event_row){ .seq = col_int(c, 0), .created_at = col_int(c, 1), type, NULL };
	return row;
}

static int read_activity(struct tx *tx, const char *company_id, int64_t after, int64_t limit,
			 struct stretch *out, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query(tx, &c, &EVENT_ACTIVITY_AFTER, err, B_TEXT(company_id), B_INT(after),
		     B_INT(limit)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		struct event_row *row = stretch_add(out, &c, EVENT_ACTIVITY);

		row->payload = activity_payload(&c, err);
		if (!row->payload)
			return -1;
	}
	return r;
}

/* A type this program does not know was written by a later one; it keeps its number and is shown
 * to nobody (no payload). */
static int read_events(struct tx *tx, const struct sql *sql, const char *id, int64_t after,
		       int64_t limit, struct stretch *out, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query(tx, &c, sql, err, B_TEXT(id), B_INT(after), B_INT(limit)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		enum event_type type = EVENT_RUN_LOG;
		bool known = event_type_parse(col_text(&c, 2), &type);
		struct event_row *row = stretch_add(out, &c, type);

		row->payload = known ? xstrdup(col_text(&c, 3)) : NULL;
	}
	return r;
}

/* The first `limit` of both, in order of their numbers. */
static void merge(struct stretch *a, struct stretch *b, size_t limit, struct event_page *page)
{
	size_t i = 0, j = 0;

	page->rows = xcalloc(limit, sizeof(*page->rows));
	while (page->count < limit && (i < a->count || j < b->count)) {
		bool first = j == b->count || (i < a->count && a->rows[i].seq < b->rows[j].seq);
		struct event_row *row = first ? &a->rows[i++] : &b->rows[j++];

		page->rows[page->count++] = *row;
		row->payload = NULL;
	}
	page->more = i < a->count || j < b->count;
}

struct reading {
	const char *company_id;
	int64_t after, limit;
	struct event_page *page;
};

/* One snapshot: the counter, the floor and both tables belong together. */
static int read_page(struct tx *tx, void *arg, struct error *err)
{
	struct reading *reading = arg;
	struct event_page *page = reading->page;
	_cleanup_(stretch_clear) struct stretch activity = { 0 }, events = { 0 };

	event_page_clear(page);
	if (number_tx(tx, &EVENT_NOW, B_ARRAY_(), 0, &page->now, err) < 0 ||
	    number_tx(tx, &EVENT_FLOOR, B_ARRAY_(B_TEXT(reading->company_id)), 0, &page->floor,
		      err) < 0)
		return -1;
	if (reading->limit == 0 || page->now <= reading->after)
		return 0;
	if (read_activity(tx, reading->company_id, reading->after, reading->limit + 1, &activity,
			  err) < 0 ||
	    read_events(tx, &EVENT_AFTER, reading->company_id, reading->after, reading->limit + 1,
			&events, err) < 0)
		return -1;
	merge(&activity, &events, (size_t)reading->limit, page);
	return 0;
}

int events_after(struct db *db, const char *company_id, int64_t after, int64_t limit,
		 struct event_page *page, struct error *err)
{
	struct reading reading = { company_id, after, MIN_OF(limit, EVENT_PAGE_MAX), page };

	if (db_read(db, read_page, &reading, err) == 0)
		return 0;
	event_page_clear(page);
	return -1;
}

struct run_reading {
	const char *run_id;
	int64_t after, limit;
	struct stretch events;
};

static int read_run(struct tx *tx, void *arg, struct error *err)
{
	struct run_reading *reading = arg;

	stretch_clear(&reading->events);
	reading->events = (struct stretch){ 0 };
	return read_events(tx, &EVENT_OF_RUN, reading->run_id, reading->after, reading->limit,
			   &reading->events, err);
}

static json_t *run_event_json(const char *run_id, const struct event_row *row)
{
	json_t *event = json_object(),
	       *payload = json_parse(row->payload, strlen(row->payload), NULL);

	json_put_int(event, "seq", row->seq);
	json_put_str(event, "runId", run_id);
	json_put_str(event, "agentId", json_str(payload, "agentId"));
	json_put_str(event, "eventType", event_type_name(row->type));
	json_put_new(event, "payload", payload);
	json_put_time(event, "createdAt", row->created_at);
	return event;
}

json_t *events_of_run(struct db *db, const char *run_id, int64_t after, int64_t limit,
		      struct error *err)
{
	struct run_reading reading = { run_id, after, limit, { 0 } };
	json_t *list = NULL;

	if (db_read(db, read_run, &reading, err) == 0) {
		list = json_array();
		for (size_t i = 0; i < reading.events.count; i++) {
			if (reading.events.rows[i].payload)
				json_array_append_new(
					list, run_event_json(run_id, &reading.events.rows[i]));
		}
	}
	stretch_clear(&reading.events);
	return list;
}
