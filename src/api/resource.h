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
