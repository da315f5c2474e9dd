/*
 * Files of a leased place. Contents stream both ways through the place's relay, which resolves
 * every path beneath the place's root; an upload becomes visible as a whole or not at all.
 */
#include "place/files.h"
#include <sys/stat.h>
#include "api/answer.h"
#include "base/text.h"

#define PATH_BYTES 4096
#define LIST_DEFAULT 1000
#define LIST_MAX 10000

/* A place one may use at the moment, with the path that is meant. */
struct visit {
	struct lease lease;
	struct place place;
	struct place_ref ref;
};

static void visit_clear(struct visit *visit)
{
	lease_clear(&visit->lease);
	place_clear(&visit->place);
}
#define _cleanup_visit_ _cleanup_(visit_clear)

static int visit_begin(struct server *server, const struct request *request, struct visit *visit,
		       struct error *err)
{
	int64_t generation;

	if (request_query_int(request, "generation", 0, INT64_MAX, GENERATION_UNCHECKED,
			      &generation, err) < 0 ||
	    lease_use(server->leases, request->param[0], generation, &visit->lease, &visit->place,
		      err) < 0)
		return -1;
	visit->ref = (struct place_ref){ server->places, visit->place.id, visit->lease.generation };
	return 0;
}

static int read_mode(const char *text, uint32_t *mode, struct error *err)
{
	size_t len = text ? strlen(text) : 0;

	*mode = 0;
	if (!text)
		return 0;
	if (len < 1 || len > 5 || strspn(text, "01234567") != len)
		return error_set(err, ERR_VALIDATION, "mode must be octal digits, like 0644");
	*mode = (uint32_t)strtoul(text, NULL, 8);
	if (*mode > 07777)
		return error_set(err, ERR_VALIDATION, "mode must be at most 7777");
	return 0;
}

static int answer_info(struct response *response, int status, struct file_info *info)
{
	return answer(response, status, file_info_json(info));
}

/* ---- reading ---- */

struct download {
	struct file_reader *reader;
	int64_t left;
};

static ssize_t next_bytes(void *arg, struct http_connection *connection, char *buf, size_t max)
{
	struct download *download = arg;
	_cleanup_error_ struct error err = { 0 };
	(void)connection;

	if (!download->left)
		return 0;

	ssize_t n = file_reader_next(download->reader, buf,
				     (size_t)MIN_OF((int64_t)max, download->left), &err);

	/* A file that has become shorter than was announced must not look whole. */
	if (n <= 0)
		return -1;
	download->left -= n;
	return n;
}

static void download_free(void *arg)
{
	struct download *download = arg;

	file_reader_close(download->reader);
	free(download);
}

struct span {
	int64_t offset, length; /* length < 0: to the end */
	bool is_range;          /* asked for by a Range header */
};

/* One range of bytes; what cannot be understood is ignored, as the standard has it. */
static void read_range(const char *header, int64_t size, struct span *span)
{
	_cleanup_free_ char *text = NULL;
	int64_t first = -1, last = -1;
	char *dash;

	if (!header || !str_starts(header, "bytes=") || strchr(header, ','))
		return;
	text = xstrdup(header + 6);
	dash = strchr(text, '-');
	if (!dash)
		return;
	*dash = '\0';
	if ((*text && !parse_i64(text, 0, INT64_MAX, &first)) ||
	    (dash[1] && !parse_i64(dash + 1, 0, INT64_MAX, &last)) || (first < 0 && last < 0) ||
	    (first >= 0 && last >= 0 && last < first))
		return;
	span->is_range = true;
	span->offset = first >= 0 ? first : MAX_OF(size - last, 0);
	span->length = first >= 0 && last >= 0 ? last - first + 1 : -1;
}

static int beyond_the_end(struct response *response, int64_t size)
{
	json_t *body = json_object();
	_cleanup_free_ char *range = xasprintf("bytes */%lld", (long long)size);

	json_put_str(body, "error", "the file is shorter than the range asked for");
	json_put_str(body, "code", "bad_request");
	response_json(response, 416, body);
	response_header(response, "Content-Range", range);
	return 0;
}

static int read_span(struct request *request, const struct visit *visit, const char *path,
		     struct span *span, struct error *err)
{
	struct file_info info = { 0 };

	if (request_query_int(request, "offset", 0, INT64_MAX, 0, &span->offset, err) < 0 ||
	    request_query_int(request, "length", 0, INT64_MAX, -1, &span->length, err) < 0)
		return -1;
	if (!request->range)
		return 0;
	if (place_file_stat(&visit->ref, path, &info, err) < 0)
		return -1;
	read_range(request->range, info.size, span);
	file_info_clear(&info);
	return 0;
}

static void put_file_headers(struct response *response, const struct span *span,
			     const struct file_info *info, int64_t length)
{
	_cleanup_free_ char *range = NULL;
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", info->mode & 07777);
	response_header(response, "X-File-Mode", mode);
	if (!span->is_range)
		return;
	range = xasprintf("bytes %lld-%lld/%lld", (long long)span->offset,
			  (long long)(span->offset + length - 1), (long long)info->size);
	response->status = 206;
	response_header(response, "Content-Range", range);
}

static int download(void *arg, struct request *request, struct response *response,
		    struct error *err)
{
	_cleanup_visit_ struct visit visit = { 0 };
	_cleanup_(file_info_clear) struct file_info info = { 0 };
	const char *path = request_query(request, "path");
	struct span span = { 0 };
	struct file_reader *reader;

	if (visit_begin(arg, request, &visit, err) < 0 ||
	    read_span(request, &visit, path, &span, err) < 0 ||
	    place_file_open(&visit.ref, path, span.offset, span.length, &info, &reader, err) < 0)
		return -1;

	int64_t rest = MAX_OF(info.size - span.offset, 0);
	int64_t length = span.length < 0 ? rest : MIN_OF(span.length, rest);

	if (span.is_range && !length) {
		file_reader_close(reader);
		return beyond_the_end(response, info.size);
	}

	struct download *state = xcalloc(1, sizeof(*state));
	struct stream stream = { next_bytes, download_free, state, NULL };

	*state = (struct download){ reader, length };
	response_stream(response, "application/octet-stream", &stream);
	response->has_length = true;
	response->length = length;
	put_file_headers(response, &span, &info, length);
	return 0;
}

/* ---- writing ---- */

static int upload_chunk(void *arg, const char *data, size_t len, struct error *err)
{
	return file_writer_append(*(struct file_writer **)arg, data, len, err);
}

static void upload_close(void *arg)
{
	struct file_writer **writer = arg;

	if (*writer)
		file_writer_abandon(*writer);
	free(writer);
}

static int upload_open(void *arg, struct request *request, struct body_sink *sink,
		       struct error *err)
{
	_cleanup_visit_ struct visit visit = { 0 };
	struct file_write_options options = {
		.no_clobber = request_query_flag(request, "noClobber", false),
	};
	struct file_writer *writer, **held;

	if (read_mode(request_query(request, "mode"), &options.mode, err) < 0 ||
	    visit_begin(arg, request, &visit, err) < 0 ||
	    place_file_create(&visit.ref, request_query(request, "path"), &options, &writer, err) <
		    0)
		return -1;
	held = xcalloc(1, sizeof(struct file_writer *));
	*held = writer;
	*sink = (struct body_sink){ upload_chunk, upload_close, held };
	return 0;
}

static int upload(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct file_writer **held = request->sink->arg;
	_cleanup_(file_info_clear) struct file_info info = { 0 };
	_cleanup_visit_ struct visit visit = { 0 };

	/* The holder may have changed while the bytes came in. */
	if (visit_begin(arg, request, &visit, err) < 0 ||
	    file_writer_commit(steal(*held), &info, err) < 0)
		return -1;
	return answer_info(response, 200, &info);
}

/* ---- the rest ---- */

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_visit_ struct visit visit = { 0 };
	_cleanup_(file_info_clear) struct file_info info = { 0 };

	if (visit_begin(arg, request, &visit, err) < 0 ||
	    place_file_stat(&visit.ref, request_query(request, "path"), &info, err) < 0)
		return -1;
	return answer_info(response, 200, &info);
}

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_visit_ struct visit visit = { 0 };
	int64_t limit;

	if (visit_begin(arg, request, &visit, err) < 0 ||
	    request_query_int(request, "limit", 1, LIST_MAX, LIST_DEFAULT, &limit, err) < 0)
		return -1;
	return answer(response, 200,
		      place_file_list(&visit.ref, request_query(request, "path"),
				      request_query(request, "cursor"), limit, err));
}

static int removal(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_visit_ struct visit visit = { 0 };

	if (visit_begin(arg, request, &visit, err) < 0 ||
	    place_file_remove(&visit.ref, request_query(request, "path"),
			      request_query_flag(request, "recursive", false), err) < 0)
		return -1;
	return answer(response, 200, json_object());
}

static int answer_stat(struct visit *visit, const char *path, int status, struct response *response,
		       struct error *err)
{
	_cleanup_(file_info_clear) struct file_info info = { 0 };

	if (place_file_stat(&visit->ref, path, &info, err) < 0)
		return -1;
	return answer_info(response, status, &info);
}

static int make_directory(void *arg, struct request *request, struct response *response,
			  struct error *err)
{
	_cleanup_visit_ struct visit visit = { 0 };
	const char *path = json_str(request->body, "path");
	uint32_t mode;

	if (read_mode(json_str(request->body, "mode"), &mode, err) < 0 ||
	    visit_begin(arg, request, &visit, err) < 0 ||
	    place_file_mkdir(&visit.ref, path, mode ? mode : 0755,
			     json_bool(request->body, "parents", false), err) < 0)
		return -1;
	return answer_stat(&visit, path, 201, response, err);
}

static int rename_file(void *arg, struct request *request, struct response *response,
		       struct error *err)
{
	_cleanup_visit_ struct visit visit = { 0 };
	const char *to = json_str(request->body, "to");

	if (visit_begin(arg, request, &visit, err) < 0 ||
	    place_file_rename(&visit.ref, json_str(request->body, "from"), to,
			      json_bool(request->body, "noClobber", false), err) < 0)
		return -1;
	return answer_stat(&visit, to, 200, response, err);
}

static int change_mode(void *arg, struct request *request, struct response *response,
		       struct error *err)
{
	_cleanup_visit_ struct visit visit = { 0 };
	const char *path = json_str(request->body, "path");
	uint32_t mode;

	if (read_mode(json_str(request->body, "mode"), &mode, err) < 0 ||
	    visit_begin(arg, request, &visit, err) < 0 ||
	    place_file_chmod(&visit.ref, path, mode, err) < 0)
		return -1;
	return answer_stat(&visit, path, 200, response, err);
}

#define PATH_FIELD(key, text)                                                                      \
	{                                                                                          \
		.name = (key), .type = FIELD_STRING, .flags = FIELD_REQUIRED, .min = 1,            \
		.max = PATH_BYTES, .summary = (text)                                               \
	}
#define PATH_QUERY PATH_FIELD("path", "From the root of the place")
#define GENERATION_QUERY                                                                           \
	{                                                                                          \
		.name = "generation", .type = FIELD_INT, .min = 0, .max = INT64_MAX,               \
		.summary = "Generation of the lease; not checked if left out"                      \
	}
#define MODE_FIELD(need)                                                                           \
	{                                                                                          \
		.name = "mode", .type = FIELD_STRING, .flags = (need), .min = 1, .max = 5,         \
		.summary = "Octal digits, like 0644"                                               \
	}
#define NO_CLOBBER                                                                                 \
	{                                                                                          \
		.name = "noClobber", .type = FIELD_BOOL,                                           \
		.summary = "An existing file is a conflict, not replaced"                          \
	}

static const struct field READ_QUERY[] = {
	PATH_QUERY,
	GENERATION_QUERY,
	{ .name = "offset", .type = FIELD_INT, .min = 0, .max = INT64_MAX },
	{ .name = "length", .type = FIELD_INT, .min = 0, .max = INT64_MAX },
	{ 0 },
};
static const struct field WRITE_QUERY[] = {
	PATH_QUERY, GENERATION_QUERY, MODE_FIELD(0), NO_CLOBBER, { 0 }
};
static const struct field REMOVE_QUERY[] = {
	PATH_QUERY,
	GENERATION_QUERY,
	{ .name = "recursive", .type = FIELD_BOOL, .summary = "With everything below it" },
	{ 0 },
};
static const struct field STAT_QUERY[] = { PATH_QUERY, GENERATION_QUERY, { 0 } };
static const struct field LIST_QUERY[] = {
	PATH_QUERY,
	GENERATION_QUERY,
	{ .name = "cursor", .type = FIELD_STRING, .min = 1, .max = 1024 },
	{ .name = "limit", .type = FIELD_INT, .min = 1, .max = LIST_MAX },
	{ 0 },
};
static const struct field CHANGE_QUERY[] = { GENERATION_QUERY, { 0 } };
static const struct field MKDIR_FIELDS[] = {
	PATH_QUERY,
	MODE_FIELD(0),
	{ .name = "parents", .type = FIELD_BOOL, .summary = "With missing parent directories" },
	{ 0 },
};
static const struct field RENAME_FIELDS[] = {
	PATH_FIELD("from", "What is there"), PATH_FIELD("to", "What it becomes"), NO_CLOBBER, { 0 }
};
static const struct field CHMOD_FIELDS[] = { PATH_QUERY, MODE_FIELD(FIELD_REQUIRED), { 0 } };

#define FILES "/api/environment-leases/:id/files"
ROUTES(FILE_ROUTES, 170) = {
	{ HTTP_GET, FILES, ROUTE_IN_PLACE | ROUTE_STREAM, .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .query = READ_QUERY, .run = download,
	  .answer = "application/octet-stream", .errors = "lease_generation_stale lease_not_active",
	  .summary = "The content of a file, or a range of it" },
	{ HTTP_PUT, FILES, ROUTE_IN_PLACE | ROUTE_RAW_BODY, .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .query = WRITE_QUERY, .run = upload, .open = upload_open,
	  .answer = "File", .errors = "lease_generation_stale lease_not_active",
	  .summary = "Writes a file, completely or not at all" },
	{ HTTP_DELETE, FILES, ROUTE_IN_PLACE, .access = ACCESS_LEASES, .subject = SUBJECT_LEASE,
	  .query = REMOVE_QUERY, .run = removal, .answer = "Nothing",
	  .errors = "lease_generation_stale lease_not_active",
	  .summary = "Removes a file or a directory" },
	{ HTTP_GET, FILES "/stat", ROUTE_IN_PLACE, .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .query = STAT_QUERY, .run = show, .answer = "File",
	  .errors = "lease_not_active", .summary = "Attributes of a file" },
	{ HTTP_GET, FILES "/list", ROUTE_IN_PLACE, .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .query = LIST_QUERY, .run = list, .answer = "FilePage",
	  .errors = "lease_not_active", .summary = "Entries of a directory" },
	{ HTTP_POST, FILES "/mkdir", ROUTE_IN_PLACE, .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .body = MKDIR_FIELDS, .query = CHANGE_QUERY,
	  .run = make_directory, .answer = "201 File",
	  .errors = "lease_generation_stale lease_not_active", .summary = "Makes a directory" },
	{ HTTP_POST, FILES "/rename", ROUTE_IN_PLACE, .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .body = RENAME_FIELDS, .query = CHANGE_QUERY,
	  .run = rename_file, .answer = "File", .errors = "lease_generation_stale lease_not_active",
	  .summary = "Renames a file or a directory" },
	{ HTTP_POST, FILES "/chmod", ROUTE_IN_PLACE, .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .body = CHMOD_FIELDS, .query = CHANGE_QUERY, .run = change_mode,
	  .answer = "File", .errors = "lease_generation_stale lease_not_active",
	  .summary = "Changes the mode of a file" },
	{ 0 },
};
