/*
 * Idempotency keys: the same key by the same actor on the same route gives the first result again
 * for 24 hours; the same key with another body is refused. The entity's id is chosen when the key
 * is first seen and kept, so that a request retried after a crash finds or finishes the same
 * entity.
 */
#pragma once

#include "record/record.h"

struct idempotency {
	char company_id[ID_SIZE];
	char actor[96];
	char route[128];
	char key[256];
	char entity_id[ID_SIZE]; /* to be used for what the request creates */
	bool replay;             /* the first result is in status/response */
	bool resumed; /* the first attempt died with an earlier server: the entity may exist */
	int status;
	char *response; /* owned */
	char node_id[ID_SIZE];
	int64_t boot_epoch;
};
#define IDEMPOTENCY_KEEP_MS 86400000
/* Longer than any request takes: an attempt this old could not write down how it ended. */
#define IDEMPOTENCY_ATTEMPT_MS 7200000
#define IDEMPOTENCY_RESPONSE_MAX ((size_t)1 << 20)
/*
 * ERR_VALIDATION on a key that is not 1..255 visible characters, ERR_IDEMPOTENCY on another body,
 * ERR_IDEMPOTENCY_BUSY while the first is under way on a live node. An attempt whose server died,
 * or that is older than IDEMPOTENCY_ATTEMPT_MS, is taken over: `resumed`. company_id NULL: the
 * request makes a company.
 */
int idempotency_begin(struct db *db, struct clock *clock, const struct node *node,
		      const char *company_id, const struct actor *actor, const char *route,
		      const char *key, const char *body, size_t body_len, struct idempotency *out,
		      struct error *err);
/* ERR_CONFLICT when the key was taken over meanwhile, ERR_TOO_LARGE past IDEMPOTENCY_RESPONSE_MAX.
 */
int idempotency_finish(struct db *db, struct clock *clock, struct idempotency *idem, int status,
		       const char *response, struct error *err);
/* Forgets a key whose request changed nothing (a refused one), so that it can be tried again. */
int idempotency_abandon(struct db *db, struct idempotency *idem, struct error *err);
void idempotency_clear(struct idempotency *idem);
/* Forgets keys older than IDEMPOTENCY_KEEP_MS; returns how many, or -1. */
int64_t idempotency_prune(struct db *db, struct clock *clock, struct error *err);
