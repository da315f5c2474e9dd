/*
 * Runs under the names the reference has for them (spec 04 section 13): the same records as below
 * /api/runs, and the output in pages for clients that poll.
 */
#include <string.h>
#include "api/answer.h"
#include "base/text.h"
#include "record/event.h"

#define PAGE_BYTES 256000
#define PAGE_BYTES_MAX 1048576

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_run_ struct run run = { 0 };

	if (run_get(server->runs, request->param[0], &run, err) < 0)
		return -1;
	return answer(response, 200, run_json(&run));
}

static int cancel(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_run_ struct run run = { 0 };

	if (run_cancel(server->runs, &request->actor, request->param[0], &run, err) < 0)
		return -1;
	return answer(response, 200, run_json(&run));
}

static int events(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_run_ struct run run = { 0 };
	int64_t after, limit;

	if (request_query_int(request, "afterSeq", 0, INT64_MAX, 0, &after, err) < 0 ||
	    request_query_int(request, "limit", 1, 1000, 200, &limit, err) < 0 ||
	    run_get(server->runs, request->param[0], &run, err) < 0)
		return -1;
	return answer(response, 200, events_of_run(server->db, run.id, after, limit, err));
}

/* ---- the log in pages ---- */

struct page {
	struct runlog_reader *reader;
	struct buf content;       /* lines of JSON */
	struct buf text;          /* of the line that is being made */
	struct runlog_chunk from; /* its first chunk */
	int64_t end;              /* of what is in content */
	bool more;
};

static void page_clear(struct page *page)
{
	runlog_reader_close(page->reader);
	buf_free(&page->content);
	buf_free(&page->text);
}

static void put_line(struct page *page, size_t len)
{
	_cleanup_json_ json_t *line = json_object();
	_cleanup_free_ char *text = NULL;
	_cleanup_buf_ struct buf repaired = { 0 };

	/* Output that is no text, or has a NUL in it, cannot be said in this shape as it was. */
	utf8_repair(&repaired, page->text.data, len);
	json_put_time(line, "ts", page->from.time_ms);
	json_put_str(line, "stream", page->from.stream == RUNLOG_STDERR ? "stderr" : "stdout");
	json_put_new(line, "chunk", json_stringn(repaired.data, repaired.len));
	text = json_text(line);
	buf_puts(&page->content, text);
	buf_putc(&page->content, '\n');
	page->end = page->from.offset + (int64_t)len;
	buf_consume(&page->text, len);
	page->from.offset += (int64_t)len;
}

/* What is there of the line, but for the beginning of a character that may be completed. */
static void put_text(struct page *page, bool whole)
{
	size_t tail =
		whole || !page->text.len ? 0 : utf8_partial_tail(page->text.data, page->text.len);

	if (page->text.len > tail)
		put_line(page, page->text.len - tail);
}

static void add_chunk(struct page *page, const struct runlog_chunk *chunk)
{
	if (page->text.len && chunk->stream != page->from.stream)
		put_text(page, true);
	if (!page->text.len)
		page->from = *chunk;
	buf_append(&page->text, chunk->data, chunk->len);
	put_text(page, false);
}

static int fill_page(struct page *page, int64_t limit, struct error *err)
{
	struct runlog_chunk chunk;
	int64_t left = limit;
	int r = 1;

	while (left > 0 && (r = runlog_read(page->reader, (size_t)left, &chunk, err)) > 0) {
		add_chunk(page, &chunk);
		left -= (int64_t)chunk.len;
	}
	if (r < 0)
		return -1;
	page->more = r > 0 && runlog_read(page->reader, 1, &chunk, err) > 0 && chunk.len > 0;
	/* Half a character at the end waits for the next page, unless it is all there is. */
	if (page->text.len &&
	    (!page->content.len || (!page->more && !runlog_is_live(page->reader))))
		put_text(page, true);
	return 0;
}

static int show_log(void *arg, struct request *request, struct response *response,
		    struct error *err)
{
	struct server *server = arg;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_(page_clear) struct page page = { 0 };
	int64_t offset, limit, lost = 0;

	if (request_query_int(request, "offset", 0, INT64_MAX, 0, &offset, err) < 0 ||
	    request_query_int(request, "limitBytes", 1, PAGE_BYTES_MAX, PAGE_BYTES, &limit, err) <
		    0 ||
	    run_get(server->runs, request->param[0], &run, err) < 0)
		return -1;
	if (run_status_is_final(run.status))
		lost = runlog_missing(server->run_logs, run.id, run.log_bytes);
	if (runlog_reader_open(server->run_logs, run.id, offset, &page.reader, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		if (lost == 0)
			return error_set(err, ERR_NOT_FOUND, "Run log not found");
		error_clear(err);
	}
	page.end = offset;
	if (page.reader && fill_page(&page, limit, err) < 0)
		return -1;

	json_t *body = json_object();

	json_put_str(body, "runId", run.id);
	json_put_str(body, "store", "berth");
	json_put_str(body, "logRef", run.id);
	json_put_str(body, "content", buf_str(&page.content));
	json_put_int(body, "offset", offset);
	json_put_int(body, "endOffset", page.end);
	if (page.more)
		json_put_int(body, "nextOffset", page.end);
	if (lost > 0)
		json_put_int(body, "outputLost", lost);
	return answer(response, 200, body);
}

static const struct field NO_FIELDS[] = { { 0 } };
static const struct field EVENTS_QUERY[] = {
	{ .name = "afterSeq",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = INT64_MAX,
	  .summary = "Only events after this one" },
	{ .name = "limit", .type = FIELD_INT, .min = 1, .max = 1000, .summary = "At most (200)" },
	{ 0 },
};
static const struct field LOG_QUERY[] = {
	{ .name = "offset",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = INT64_MAX,
	  .summary = "Bytes of output to skip: endOffset of the previous page" },
	{ .name = "limitBytes",
	  .type = FIELD_INT,
	  .min = 1,
	  .max = PAGE_BYTES_MAX,
	  .summary = "Bytes of output, at most (256000)" },
	{ 0 },
};

ROUTES(HEARTBEAT_RUN_ROUTES, 200) = {
	{ .method = HTTP_GET,
	  .path = "/api/heartbeat-runs/:id",
	  .access = ACCESS_READ,
	  .subject = SUBJECT_RUN,
	  .run = show,
	  .answer = "Run",
	  .summary = "One run, as /api/runs/:id" },
	{ .method = HTTP_POST,
	  .path = "/api/heartbeat-runs/:id/cancel",
	  .flags = ROUTE_NO_BODY_OK,
	  .body = NO_FIELDS,
	  .access = ACCESS_BOARD,
	  .subject = SUBJECT_RUN,
	  .run = cancel,
	  .answer = "Run",
	  .summary = "Ends a run, as /api/runs/:id/cancel" },
	{ .method = HTTP_GET,
	  .path = "/api/heartbeat-runs/:id/events",
	  .access = ACCESS_READ,
	  .subject = SUBJECT_RUN,
	  .query = EVENTS_QUERY,
	  .run = events,
	  .answer = "[RunEvent]",
	  .summary = "Events of a run, oldest first" },
	{ .method = HTTP_GET,
	  .path = "/api/heartbeat-runs/:id/log",
	  .access = ACCESS_READ,
	  .subject = SUBJECT_RUN,
	  .query = LOG_QUERY,
	  .run = show_log,
	  .answer = "RunLogPage",
	  .summary = "A page of the output of a run, as lines of JSON {ts, stream, chunk}" },
	{ 0 },
};
