#include "live/log_growth.h"

#include <stdlib.h>
#include <string.h>
#include "base/text.h"

SQL(GROWTH_RUN, "SELECT company_id, agent_id FROM runs WHERE id = $1");

struct log {
	char run_id[ID_SIZE], company_id[ID_SIZE], agent_id[ID_SIZE]; /* company "": no run's log */
	int64_t end, told;
};

struct logs {
	struct log *list; /* by run_id */
	size_t count, size;
};

struct log_growth {
	struct db *db;
	struct runlog_store *store;
	struct logs known;
};

struct log_growth *log_growth_new(struct db *db, struct runlog_store *store)
{
	struct log_growth *growth = xcalloc(1, sizeof(*growth));

	growth->db = db;
	growth->store = store;
	return growth;
}

void log_growth_forget(struct log_growth *growth)
{
	free(growth->known.list);
	growth->known = (struct logs){ 0 };
}

void log_growth_free(struct log_growth *growth)
{
	if (!growth)
		return;
	log_growth_forget(growth);
	free(growth);
}

static void note(void *arg, const char *name, int64_t end)
{
	struct logs *logs = arg;

	if (!id_is_valid(name))
		return;
	if (logs->count == logs->size) {
		logs->size = logs->size ? logs->size * 2 : 16;
		logs->list = xreallocarray(logs->list, logs->size, sizeof(*logs->list));
	}
	logs->list[logs->count] = (struct log){ .end = end, .told = -1 };
	id_copy(logs->list[logs->count++].run_id, name);
}

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct log *)a)->run_id, ((const struct log *)b)->run_id);
}

static int read_run(struct tx *tx, void *arg, struct error *err)
{
	struct log *log = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &GROWTH_RUN, err, B_TEXT(log->run_id)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	if (r <= 0)
		return r;
	id_copy(log->company_id, col_text(&c, 0));
	id_copy(log->agent_id, col_text(&c, 1));
	return 0;
}

/* What the last look learned of the same log. */
static void remember(struct log_growth *growth, struct log *log)
{
	const struct log *old =
		growth->known.count
			? bsearch(log, growth->known.list, growth->known.count, sizeof(*log), by_id)
			: NULL;

	if (old) {
		id_copy(log->company_id, old->company_id);
		id_copy(log->agent_id, old->agent_id);
		log->told = old->told;
	} else if (db_read(growth->db, read_run, log, NULL) < 0) {
		log->company_id[0] = '\0';
	}
}

static void tell(struct log *log, int64_t now, log_growth_fn *fn, void *arg)
{
	_cleanup_json_ json_t *payload = json_object();
	struct event_row row = { .type = EVENT_RUN_LOG, .created_at = now };

	json_put_str(payload, "runId", log->run_id);
	json_put_str(payload, "agentId", id_is_set(log->agent_id) ? log->agent_id : NULL);
	json_put_time(payload, "ts", row.created_at);
	json_put_int(payload, "offset", MAX_OF(log->told, 0));
	json_put_int(payload, "endOffset", log->end);
	row.payload = json_text(payload);
	fn(arg, log->company_id, &row);
	free(row.payload);
	log->told = log->end;
}

void log_growth_look(struct log_growth *growth, int64_t now_ms, log_growth_fn *fn, void *arg)
{
	struct logs now = { 0 };

	runlog_each_live(growth->store, note, &now);
	if (now.count)
		qsort(now.list, now.count, sizeof(*now.list), by_id);
	for (size_t i = 0; i < now.count; i++) {
		struct log *log = &now.list[i];

		remember(growth, log);
		if (id_is_set(log->company_id) && log->end > MAX_OF(log->told, 0))
			tell(log, now_ms, fn, arg);
	}
	log_growth_forget(growth);
	growth->known = now;
}
