/*
 * What the handlers share: finding what the path names, answering, and making something once.
 */
#pragma once

#include "api/server.h"
#include "record/idempotency.h"

/* Answers with json, which it takes; NULL means that err is set already, and gives -1. */
int answer(struct response *response, int status, json_t *json);

/* The company of the first name in the path, or 404. */
int company_of_path(struct server *server, const struct request *request, struct company *company,
		    struct error *err);
#define _cleanup_company_ _cleanup_(company_clear)

/* What the Sandbox of every company is configured with; NULL on error. */
json_t *sandbox_config(struct server *server, struct error *err);

/* Who writes, and under which rules, when a handler makes or changes a record. */
struct writer writer_of(struct server *server, const struct request *request);

/*
 * The list a request asks for: its page and whichever filters the route's query has. Every such
 * query ends with LIST_FIELDS. Answering puts the cursor of the rest, if there is one, into the
 * header X-Next-Cursor.
 */
#define LIST_FIELDS                                                                                \
	{ .name = "limit",                                                                         \
	  .type = FIELD_INT,                                                                       \
	  .min = 1,                                                                                \
	  .max = RECORD_LIST_MAX,                                                                  \
	  .summary = "At most this many; default: 1000" },                                         \
	{                                                                                          \
		.name = "cursor", .type = FIELD_STRING, .max = LIST_CURSOR_SIZE,                   \
		.summary = "X-Next-Cursor of the previous answer"                                  \
	}
/* Narrows runs and activity to those of one record. */
#define OF_RECORD_FIELDS                                                                           \
	{ .name = "agentId", .type = FIELD_UUID, .summary = "Only of this agent" },                \
		{ .name = "issueId", .type = FIELD_UUID, .summary = "Only of this issue" },        \
		{ .name = "projectId", .type = FIELD_UUID, .summary = "Only of this project" },    \
	{                                                                                          \
		.name = "environmentId", .type = FIELD_UUID, .summary = "Only of this environment" \
	}
int list_query_of(const struct request *request, const char *company_id, struct list_query *query,
		  struct error *err);
int answer_list(struct response *response, const struct list_query *query, json_t *list);

/*
 * An environment's JSON for whoever asks: those who do not manage environments see which there are,
 * and not how they are made. Takes and gives back `json`.
 */
json_t *environment_viewed(const struct request *request, json_t *json);

/*
 * Makes what a POST asks for under the id given; with `resumed` an earlier server died in the
 * middle of it, so it may be there already and is then to be returned. NULL with err set when
 * nothing was made.
 */
typedef json_t *make_fn(struct server *server, struct request *request, const char *id,
			bool resumed, void *arg, struct error *err);

/*
 * Answers 201 with what `make` made. With an Idempotency-Key the same request repeated gets the
 * first answer again; a request that failed leaves the key free.
 */
int answer_created(struct server *server, struct request *request, struct response *response,
		   const char *company_id, make_fn *make, void *arg, struct error *err);
/* The key's half of that, for what is no plain answer. The key is (method and path, actor). */
int key_begin(struct server *server, const struct request *request, const char *company_id,
	      struct idempotency *idem, struct error *err);
