#include "run/row.h"

#include <string.h>

#include "base/text.h"
#include "record/row.h"

static json_t *adapter_of(const void *record)
{
	const struct run *run = record;
	const char *type = json_str(json_object_at(run->context, "request"), "adapterType");

	return type ? json_string(type) : NULL;
}

static json_t *env_names(const void *record)
{
	const struct run *run = record;
	json_t *names = json_array();
	const char *key;
	json_t *value;

	json_object_foreach (run->env, key, value) {
		json_array_append_new(names, json_string(key));
	}
	return names;
}

/* What was asked for, and over it what became of it. */
static json_t *workspace_of(const void *record)
{
	const struct run *run = record;
	json_t *shown;

	if (!run->workspace)
		return NULL;
	shown = json_copy(run->workspace);
	json_put_str(shown, "phase", NULL);
	json_put_str(shown, "placeRoot", NULL);
	json_put_new(shown, "staged", NULL);
	json_put_new(shown, "counts", NULL);
	json_put_new(shown, "error", NULL);
	if (run->workspace_report)
		json_object_update(shown, run->workspace_report);
	json_put_time(shown, "placeKeptUntil", run->place_kept_until);
	return shown;
}

/*
 * What COLUMN_INSERT writes is what was asked for, which a retry asks for again: run_queue_retry
 * inserts the row once more. All else is written by the statements of update.c.
 */
#define AT(member) .offset = offsetof(struct run, member)
const struct column RUN_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, COLUMN_INSERT, AT(id) },
	{ "companyId", "company_id", COLUMN_ID, COLUMN_INSERT, AT(company_id) },
	{ "agentId", "agent_id", COLUMN_ID, COLUMN_INSERT | COLUMN_NULLABLE, AT(agent_id) },
	{ "projectId", "project_id", COLUMN_ID, COLUMN_INSERT | COLUMN_NULLABLE, AT(project_id) },
	{ "issueId", "issue_id", COLUMN_ID, COLUMN_INSERT | COLUMN_NULLABLE, AT(issue_id) },
	{ "executionWorkspaceId", "execution_workspace_id", COLUMN_ID,
	  COLUMN_INSERT | COLUMN_NULLABLE, AT(workspace_id) },
	{ "environmentId", "environment_id", COLUMN_ID, COLUMN_NULLABLE, AT(environment_id) },
	{ "leaseId", "lease_id", COLUMN_ID, COLUMN_NULLABLE, AT(lease_id) },
	{ "adapterType", NULL, COLUMN_TEXT, COLUMN_NULLABLE, .make = adapter_of,
	  .summary = "Who got its prompt; null: it named a command" },
	{ "status", "status", COLUMN_WORD, COLUMN_INSERT, AT(status), .words = run_status_names },
	{ "statusReason", "status_reason", COLUMN_TEXT, COLUMN_NULLABLE, AT(status_reason),
	  .summary = "Why it waits, or why it runs but is not followed" },
	{ "exitCode", "exit_code", COLUMN_CODE, 0, AT(exit_code) },
	{ "signal", "signal", COLUMN_TEXT, COLUMN_NULLABLE, AT(signal) },
	{ "reason", "reason", COLUMN_TEXT, COLUMN_NULLABLE, AT(reason),
	  .summary = "How the command ended" },
	{ "error", "error", COLUMN_TEXT, COLUMN_NULLABLE, AT(error) },
	{ "errorCode", "error_code", COLUMN_TEXT, COLUMN_NULLABLE, AT(error_code) },
	{ "command", "command", COLUMN_STRV, COLUMN_INSERT | COLUMN_NULLABLE, AT(command) },
	{ "cwd", "cwd", COLUMN_TEXT, COLUMN_INSERT | COLUMN_NULLABLE, AT(cwd) },
	{ NULL, "env", COLUMN_JSON, COLUMN_INSERT | COLUMN_OBJECT, AT(env) },
	{ "envKeys", NULL, COLUMN_STRV, 0, .make = env_names,
	  .summary = "Names of its variables, never their values" },
	{ NULL, "stdin", COLUMN_TEXT, COLUMN_INSERT, AT(stdin_text) },
	{ NULL, "stdin_encoding", COLUMN_TEXT, COLUMN_INSERT, AT(stdin_encoding) },
	{ NULL, "secrets", COLUMN_INT, COLUMN_INSERT, AT(secrets) },
	{ "timeoutMs", "timeout_ms", COLUMN_COUNT, COLUMN_INSERT, AT(timeout_ms) },
	{ NULL, "invocation_source", COLUMN_TEXT, COLUMN_INSERT, AT(invocation_source) },
	{ "retryOfRunId", "retry_of_run_id", COLUMN_ID, COLUMN_INSERT | COLUMN_NULLABLE,
	  AT(retry_of_run_id) },
	{ "processLossRetryCount", "process_loss_retry_count", COLUMN_INT, COLUMN_INSERT,
	  AT(process_loss_retry_count) },
	{ NULL, "process_pid", COLUMN_INT, 0, AT(process_pid) },
	{ "logBytes", "log_bytes", COLUMN_INT, 0, AT(log_bytes), .summary = "Length of its log" },
	{ "context", "context", COLUMN_JSON, COLUMN_INSERT | COLUMN_NULLABLE | COLUMN_OBJECT,
	  AT(context) },
	{ "timings", "timings", COLUMN_JSON, COLUMN_NULLABLE | COLUMN_OBJECT, AT(timings) },
	{ "result", "result", COLUMN_JSON, COLUMN_NULLABLE, AT(result) },
	{ NULL, "workspace", COLUMN_JSON, COLUMN_INSERT | COLUMN_NULLABLE, AT(workspace) },
	{ NULL, "workspace_report", COLUMN_JSON, COLUMN_NULLABLE, AT(workspace_report) },
	{ NULL, "place_kept_until", COLUMN_TIME, 0, AT(place_kept_until) },
	{ "workspace", NULL, COLUMN_JSON, COLUMN_NULLABLE, .make = workspace_of,
	  .shape = "RunWorkspace", .summary = "Its files; null: it brought none" },
	{ "nodeId", "node_id", COLUMN_ID, COLUMN_INSERT | COLUMN_NULLABLE, AT(node_id),
	  .shape = "string" },
	{ NULL, "boot_epoch", COLUMN_INT, COLUMN_INSERT, AT(boot_epoch) },
	{ "cancelRequestedAt", "cancel_requested_at", COLUMN_TIME, COLUMN_NULLABLE,
	  AT(cancel_requested_at) },
	{ "createdAt", "created_at", COLUMN_TIME, COLUMN_INSERT, AT(created_at) },
	{ "startedAt", "started_at", COLUMN_TIME, COLUMN_NULLABLE, AT(started_at) },
	{ "finishedAt", "finished_at", COLUMN_TIME, COLUMN_NULLABLE, AT(finished_at) },
	{ "updatedAt", "updated_at", COLUMN_TIME, COLUMN_INSERT, AT(updated_at) },
	{ 0 },
};
static const struct row_kind RUN = { "Run", sizeof(struct run), RUN_COLUMNS };

SQL_OF(RUN_GET, RUN_COLUMNS, "SELECT {*} FROM runs WHERE id = $1");
SQL_OF(RUN_INSERT, RUN_COLUMNS, "INSERT INTO runs ({insert}) VALUES ({values})");
/*
 * A list goes along the index of the narrowest thing that is asked for; the other wishes only leave
 * rows out. The empty text behind a column keeps planners from taking its index instead.
 */
#define RUN_LIST_ALONG(condition)                                                                  \
	"SELECT {*} FROM runs WHERE " condition " AND (created_at < CAST($2 AS BIGINT)"            \
	"  OR (created_at = CAST($2 AS BIGINT) AND id < CAST($3 AS TEXT)))"                        \
	" AND (CAST($5 AS TEXT) IS NULL OR status || '' = CAST($5 AS TEXT))"                       \
	" AND (CAST($6 AS TEXT) IS NULL OR agent_id || '' = CAST($6 AS TEXT))"                     \
	" AND (CAST($7 AS TEXT) IS NULL OR issue_id || '' = CAST($7 AS TEXT))"                     \
	" AND (CAST($8 AS TEXT) IS NULL OR project_id || '' = CAST($8 AS TEXT))"                   \
	" AND (CAST($9 AS TEXT) IS NULL OR environment_id || '' = CAST($9 AS TEXT))"               \
	" ORDER BY created_at DESC, id DESC LIMIT CAST($4 AS BIGINT)"
#define OF_COMPANY "company_id || '' = CAST($1 AS TEXT)"
SQL_OF(RUN_LIST, RUN_COLUMNS, RUN_LIST_ALONG("company_id = CAST($1 AS TEXT)"));
SQL_OF(RUN_LIST_BY_STATUS, RUN_COLUMNS,
       RUN_LIST_ALONG("company_id = CAST($1 AS TEXT) AND status = CAST($5 AS TEXT)"));
SQL_OF(RUN_LIST_OF_AGENT, RUN_COLUMNS,
       RUN_LIST_ALONG("agent_id = CAST($6 AS TEXT) AND " OF_COMPANY));
SQL_OF(RUN_LIST_OF_ISSUE, RUN_COLUMNS,
       RUN_LIST_ALONG("issue_id = CAST($7 AS TEXT) AND " OF_COMPANY));
SQL_OF(RUN_LIST_OF_PROJECT, RUN_COLUMNS,
       RUN_LIST_ALONG("project_id = CAST($8 AS TEXT) AND " OF_COMPANY));
SQL_OF(RUN_LIST_OF_ENVIRONMENT, RUN_COLUMNS,
       RUN_LIST_ALONG("environment_id = CAST($9 AS TEXT) AND " OF_COMPANY));

void run_clear(struct run *run)
{
	if (run->stdin_text)
		wipe(run->stdin_text, strlen(run->stdin_text));
	row_clear(&RUN, run);
}

int run_load_tx(struct tx *tx, const char *id, struct run *run, struct error *err)
{
	return row_get_tx(tx, &RUN, &RUN_GET, run, err, B_TEXT(id));
}

int run_insert_tx(struct tx *tx, const struct run *run, struct error *err)
{
	return row_insert_tx(tx, &RUN_INSERT, run, err) < 0 ? -1 : 0;
}

json_t *run_json(const struct run *run)
{
	return row_json(&RUN, run);
}

int run_stdin(const struct run *run, struct buf *out, struct error *err)
{
	if (!run->stdin_text)
		return 0;
	if (!str_equal(run->stdin_encoding, "base64"))
		buf_puts(out, run->stdin_text);
	else if (!base64_decode(out, run->stdin_text, strlen(run->stdin_text)))
		return error_set(err, ERR_DB, "unexpected stdin value: not base64");
	return 0;
}

json_t *run_progress_json(const struct run_progress *progress)
{
	json_t *json = json_object();

	json_put_str(json, "step", progress->step);
	json_put_int(json, "files", progress->files);
	json_put_int(json, "filesTotal", progress->files_total);
	json_put_int(json, "bytes", progress->bytes);
	json_put_int(json, "bytesTotal", progress->bytes_total);
	return json;
}

/* A cursor is "<created_at ms>.<run id>" of the last item shown. */
struct page {
	const struct run_query *query;
	int64_t before_ms;
	char before_id[ID_SIZE];
	json_t *items;
	int64_t last_ms;
	char last_id[ID_SIZE];
	bool more;
};

static int parse_cursor(const char *cursor, struct page *page, struct error *err)
{
	char number[24];
	const char *dot = cursor ? strchr(cursor, '.') : NULL;

	page->before_ms = INT64_MAX;
	if (!cursor)
		return 0;
	if (!dot || (size_t)(dot - cursor) >= sizeof(number) || !id_is_valid(dot + 1))
		return error_set(err, ERR_VALIDATION, "cursor is not one that this server issued");
	memcpy(number, cursor, (size_t)(dot - cursor));
	number[dot - cursor] = 0;
	if (!parse_i64(number, 0, INT64_MAX, &page->before_ms))
		return error_set(err, ERR_VALIDATION, "cursor is not one that this server issued");
	id_copy(page->before_id, dot + 1);
	return 0;
}

static const struct sql *list_statement(const struct run_query *q)
{
	return q->issue_id         ? &RUN_LIST_OF_ISSUE
	       : q->agent_id       ? &RUN_LIST_OF_AGENT
	       : q->project_id     ? &RUN_LIST_OF_PROJECT
	       : q->environment_id ? &RUN_LIST_OF_ENVIRONMENT
	       : q->status         ? &RUN_LIST_BY_STATUS
				   : &RUN_LIST;
}

static int list_page(struct tx *tx, void *arg, struct error *err)
{
	struct page *page = arg;
	const struct run_query *q = page->query;
	_cleanup_cursor_ struct cursor c = { 0 };
	int more;

	json_array_clear(page->items);
	if (tx_query(tx, &c, list_statement(q), err, B_TEXT(q->company_id), B_INT(page->before_ms),
		     B_TEXT(page->before_id), B_INT(q->limit + 1), B_TEXT(q->status),
		     B_TEXT(q->agent_id), B_TEXT(q->issue_id), B_TEXT(q->project_id),
		     B_TEXT(q->environment_id)) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0) {
		_cleanup_run_ struct run run = { 0 };

		if (json_array_size(page->items) == (size_t)q->limit) {
			page->more = true;
			break;
		}
		if (row_read(&RUN, &c, &run, err) < 0)
			return -1;
		json_array_append_new(page->items, run_json(&run));
		page->last_ms = run.created_at;
		id_copy(page->last_id, run.id);
	}
	return more < 0 ? -1 : 0;
}

json_t *run_page(struct db *db, const struct run_query *query, struct error *err)
{
	struct page page = { .query = query };
	_cleanup_json_ json_t *items = json_array();
	_cleanup_free_ char *next = NULL;
	json_t *answer;

	page.items = items;
	if (parse_cursor(query->cursor, &page, err) < 0 || db_read(db, list_page, &page, err) < 0)
		return NULL;
	if (page.more)
		next = xasprintf("%lld.%s", (long long)page.last_ms, page.last_id);
	answer = json_object();
	json_put_ref(answer, "items", items);
	json_put_str(answer, "nextCursor", next);
	return answer;
}

struct actor run_actor(const struct run *run)
{
	struct actor actor = ACTOR_SYSTEM;

	id_copy(actor.run_id, run->id);
	if (id_is_set(run->agent_id)) {
		/* Its name only: rights are those of the server. */
		snprintf(actor.type, sizeof(actor.type), "agent");
		snprintf(actor.id, sizeof(actor.id), "%s", run->agent_id);
		id_copy(actor.agent_id, run->agent_id);
	}
	return actor;
}
