#include "run/row.h"

#include <string.h>

#include "base/text.h"

#define RUN_COLUMNS                                                                                \
	"id, company_id, agent_id, project_id, issue_id, execution_workspace_id, environment_id,"  \
	" lease_id, retry_of_run_id, node_id, status, status_reason, command, cwd, env, stdin,"    \
	" stdin_encoding, timeout_ms, exit_code, signal, reason, error, error_code, process_pid,"  \
	" log_bytes, process_loss_retry_count, context, timings, result,"                          \
	" boot_epoch, cancel_requested_at, created_at, started_at, finished_at, updated_at,"       \
	" workspace, workspace_report, place_kept_until, secrets"

SQL(RUN_GET, "SELECT " RUN_COLUMNS " FROM runs WHERE id = $1");
/*
 * A list goes along the index of the narrowest thing that is asked for; the other wishes only leave
 * rows out. The empty text behind a column keeps planners from taking its index instead.
 */
#define RUN_LIST_ALONG(condition)                                                                  \
	"SELECT " RUN_COLUMNS " FROM runs WHERE " condition                                        \
	" AND (created_at < CAST($2 AS BIGINT)"                                                    \
	"  OR (created_at = CAST($2 AS BIGINT) AND id < CAST($3 AS TEXT)))"                        \
	" AND (CAST($5 AS TEXT) IS NULL OR status || '' = CAST($5 AS TEXT))"                       \
	" AND (CAST($6 AS TEXT) IS NULL OR agent_id || '' = CAST($6 AS TEXT))"                     \
	" AND (CAST($7 AS TEXT) IS NULL OR issue_id || '' = CAST($7 AS TEXT))"                     \
	" AND (CAST($8 AS TEXT) IS NULL OR project_id || '' = CAST($8 AS TEXT))"                   \
	" AND (CAST($9 AS TEXT) IS NULL OR environment_id || '' = CAST($9 AS TEXT))"               \
	" ORDER BY created_at DESC, id DESC LIMIT CAST($4 AS BIGINT)"
#define OF_COMPANY "company_id || '' = CAST($1 AS TEXT)"
SQL(RUN_LIST, RUN_LIST_ALONG("company_id = CAST($1 AS TEXT)"));
SQL(RUN_LIST_BY_STATUS,
    RUN_LIST_ALONG("company_id = CAST($1 AS TEXT) AND status = CAST($5 AS TEXT)"));
SQL(RUN_LIST_OF_AGENT, RUN_LIST_ALONG("agent_id = CAST($6 AS TEXT) AND " OF_COMPANY));
SQL(RUN_LIST_OF_ISSUE, RUN_LIST_ALONG("issue_id = CAST($7 AS TEXT) AND " OF_COMPANY));
SQL(RUN_LIST_OF_PROJECT, RUN_LIST_ALONG("project_id = CAST($8 AS TEXT) AND " OF_COMPANY));
SQL(RUN_LIST_OF_ENVIRONMENT, RUN_LIST_ALONG("environment_id = CAST($9 AS TEXT) AND " OF_COMPANY));

void run_clear(struct run *run)
{
	free(run->status_reason);
	strv_free(run->command);
	free(run->cwd);
	json_decref(run->env);
	if (run->stdin_data)
		wipe(run->stdin_data, run->stdin_len);
	free(run->stdin_data);
	free(run->signal);
	free(run->reason);
	free(run->error);
	free(run->error_code);
	json_decref(run->context);
	json_decref(run->timings);
	json_decref(run->result);
	json_decref(run->workspace);
	json_decref(run->workspace_report);
	*run = (struct run){ 0 };
}

static json_t *column_json(struct cursor *c, int column)
{
	const char *text = col_text(c, column);

	return text ? json_parse(text, strlen(text), NULL) : NULL;
}

static json_t *column_object(struct cursor *c, int column)
{
	json_t *value = column_json(c, column);

	if (json_is_object(value))
		return value;
	json_decref(value);
	return json_object();
}

static int read_stdin(struct cursor *c, int column, struct run *run, struct error *err)
{
	const char *text = col_text(c, column), *encoding = col_text(c, column + 1);
	_cleanup_buf_ struct buf raw = { 0 };

	if (!text)
		return 0;
	if (str_equal(encoding, "base64")) {
		if (!base64_decode(&raw, text, strlen(text)))
			return error_set(err, ERR_DB, "unexpected stdin value: not base64");
	} else {
		buf_puts(&raw, text);
	}
	run->stdin_len = raw.len;
	run->stdin_data = buf_steal(&raw);
	return 0;
}

static int read_row(struct cursor *c, struct run *run, struct error *err)
{
	_cleanup_json_ json_t *command = column_json(c, 12);

	*run = (struct run){ 0 };
	id_copy(run->id, col_text(c, 0));
	id_copy(run->company_id, col_text(c, 1));
	id_copy(run->agent_id, col_text(c, 2));
	id_copy(run->project_id, col_text(c, 3));
	id_copy(run->issue_id, col_text(c, 4));
	id_copy(run->workspace_id, col_text(c, 5));
	id_copy(run->environment_id, col_text(c, 6));
	id_copy(run->lease_id, col_text(c, 7));
	id_copy(run->retry_of_run_id, col_text(c, 8));
	id_copy(run->node_id, col_text(c, 9));
	if (!run_status_parse(col_text(c, 10), &run->status))
		return error_set(err, ERR_DB, "unexpected run status value: %s", col_text(c, 10));
	run->status_reason = xstrdup(col_text(c, 11));
	run->command = json_to_strv(command);
	if (!run->command)
		return error_set(err, ERR_DB, "unexpected run command value in run %s", run->id);
	run->cwd = xstrdup(col_text(c, 13));
	run->env = column_object(c, 14);
	if (read_stdin(c, 15, run, err) < 0)
		return -1;
	run->timeout_ms = col_int(c, 17);
	run->has_exit_code = !col_is_null(c, 18);
	run->exit_code = (int)col_int(c, 18);
	run->signal = xstrdup(col_text(c, 19));
	run->reason = xstrdup(col_text(c, 20));
	run->error = xstrdup(col_text(c, 21));
	run->error_code = xstrdup(col_text(c, 22));
	run->process_pid = col_int(c, 23);
	run->log_bytes = col_int(c, 24);
	run->process_loss_retry_count = col_int(c, 25);
	run->context = column_object(c, 26);
	run->timings = column_object(c, 27);
	run->result = column_json(c, 28);
	run->boot_epoch = col_int(c, 29);
	run->cancel_requested_at = col_int(c, 30);
	run->created_at = col_int(c, 31);
	run->started_at = col_int(c, 32);
	run->finished_at = col_int(c, 33);
	run->updated_at = col_int(c, 34);
	run->workspace = column_json(c, 35);
	run->workspace_report = column_json(c, 36);
	run->place_kept_until = col_int(c, 37);
	run->secrets = (enum run_secrets)col_int(c, 38);
	return 0;
}

int run_load_tx(struct tx *tx, const char *id, struct run *run, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int found;

	if (tx_query(tx, &c, &RUN_GET, err, B_TEXT(id)) < 0)
		return -1;
	found = cursor_next(&c, err);
	if (found < 0)
		return -1;
	if (found == 0)
		return error_set(err, ERR_NOT_FOUND, "Run not found");
	if (read_row(&c, run, err) < 0) {
		run_clear(run);
		return -1;
	}
	return 0;
}

static json_t *env_names(const json_t *env)
{
	json_t *names = json_array();
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)env, key, value) {
		json_array_append_new(names, json_string(key));
	}
	return names;
}

/* What was asked for, and over it what became of it. */
static json_t *workspace_json(const struct run *run)
{
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

json_t *run_json(const struct run *run)
{
	json_t *o = json_object();

	json_put_str(o, "id", run->id);
	json_put_str(o, "companyId", run->company_id);
	json_put_str(o, "agentId", id_is_set(run->agent_id) ? run->agent_id : NULL);
	json_put_str(o, "projectId", id_is_set(run->project_id) ? run->project_id : NULL);
	json_put_str(o, "issueId", id_is_set(run->issue_id) ? run->issue_id : NULL);
	json_put_str(o, "executionWorkspaceId",
		     id_is_set(run->workspace_id) ? run->workspace_id : NULL);
	json_put_str(o, "environmentId",
		     id_is_set(run->environment_id) ? run->environment_id : NULL);
	json_put_str(o, "leaseId", id_is_set(run->lease_id) ? run->lease_id : NULL);
	json_put_str(o, "adapterType",
		     json_str(json_object_at(run->context, "request"), "adapterType"));
	json_put_str(o, "status", run_status_name(run->status));
	json_put_str(o, "statusReason", run->status_reason);
	json_put_new(o, "exitCode", run->has_exit_code ? json_integer(run->exit_code) : NULL);
	json_put_str(o, "signal", run->signal);
	json_put_str(o, "reason", run->reason);
	json_put_str(o, "error", run->error);
	json_put_str(o, "errorCode", run->error_code);
	json_put_new(o, "command", json_from_strv(run->command));
	json_put_str(o, "cwd", run->cwd);
	json_put_new(o, "envKeys", env_names(run->env));
	json_put_new(o, "timeoutMs", run->timeout_ms > 0 ? json_integer(run->timeout_ms) : NULL);
	json_put_str(o, "retryOfRunId",
		     id_is_set(run->retry_of_run_id) ? run->retry_of_run_id : NULL);
	json_put_int(o, "processLossRetryCount", run->process_loss_retry_count);
	json_put_int(o, "logBytes", run->log_bytes);
	json_put_ref(o, "context", run->context);
	json_put_ref(o, "timings", run->timings);
	json_put_ref(o, "result", run->result);
	json_put_new(o, "workspace", workspace_json(run));
	json_put_str(o, "nodeId", run->node_id);
	json_put_time(o, "cancelRequestedAt", run->cancel_requested_at);
	json_put_time(o, "createdAt", run->created_at);
	json_put_time(o, "startedAt", run->started_at);
	json_put_time(o, "finishedAt", run->finished_at);
	json_put_time(o, "updatedAt", run->updated_at);
	return o;
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
		if (read_row(&c, &run, err) < 0)
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
