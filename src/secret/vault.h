/*
 * Vaults: where secret values live. A vault is one table of functions; it registers itself with
 * VAULT_REGISTER at the foot of its file, and nothing else names it. Calls block until their
 * deadline, hold no lock and no transaction, and write no rows: only life.c, resolve.c and
 * import.c do.
 *
 * No function but `resolve` gives a value. The others return material: what the vault needs to
 * find the value again, which is stored in the version's row.
 */
#pragma once

#include "secret/secret.h"

struct vault_config; /* a company's row */

enum vault_can {
	VAULT_MANAGED = 1,  /* keeps values that Berth gives it: create, rotate, archive, remove */
	VAULT_EXTERNAL = 2, /* reads values that others keep: link */
	VAULT_LIST = 4,     /* has a list of them: list */
	VAULT_COMING_SOON = 8, /* configs can be stored, nothing resolves */
};

/* What the server gives every vault; lives as long as the server. */
struct vault_host {
	struct clock *clock;
	struct seal *seal;
	const json_t *commands;   /* of vault `exec`: {name: {command: [...]}}; NULL: none */
	const char *aws_endpoint; /* NULL: Amazon's of the region */
};

/*
 * For whom a vault is called. `config` is the company's (docs: vault configs); NULL is the server's
 * own default. `version_id` names the version that is written: a call that is repeated with it does
 * not write twice.
 */
struct vault_call {
	const struct vault_host *host;
	const char *config_id; /* of the company's vault config; NULL: the server's default */
	const json_t *config;  /* its `config`; NULL: the server's default */
	const char *company_id, *secret_id, *secret_key, *secret_name;
	const char *version_id;
	int64_t version;
	int64_t deadline_mono_ms; /* clock_mono of host->clock */
};

/* What the rows hold of a value. */
struct vault_held {
	const json_t *material;
	const char *external_ref; /* NULL: none */
	const char *version_ref;  /* NULL: none */
};

/* What a write gives back to be stored. */
struct vault_material {
	json_t *material;
	char value_hash[SEAL_HASH_SIZE];
	char *external_ref, *version_ref; /* NULL: none */
};
void vault_material_clear(struct vault_material *made);
#define _cleanup_vault_material_ _cleanup_(vault_material_clear)

struct vault_list_query {
	const char *text;       /* NULL: all */
	const char *next_token; /* NULL: the first page */
	int64_t page_size;      /* 1..100 */
};
/* A remote secret: names and dates, nothing of its content. */
struct vault_remote {
	char *external_ref, *name;
	json_t *metadata; /* NULL: none */
};
struct vault_list {
	struct vault_remote *items;
	size_t count;
	char *next_token; /* NULL: that was all */
};
void vault_list_clear(struct vault_list *list);

/* `status` of a health: "ok", "warn", "error". */
struct vault_health {
	const char *status;
	char *message;
	json_t *warnings, *backup_guidance; /* arrays of strings, or NULL */
	json_t *details;                    /* object, or NULL */
};
void vault_health_clear(struct vault_health *health);

/*
 * Functions that a vault does not have are NULL, as `can` says; vault_call_* in vault.c refuse
 * those by name and are what the rest of this room uses. Errors are ERR_VAULT_* of vault_fail, or
 * those of seal.
 */
struct vault {
	const char *provider; /* "local_encrypted" */
	const char *label;    /* for people */
	int order;            /* in lists */
	unsigned can;         /* enum vault_can */
	bool needs_ref;       /* every secret of it is an external reference */
	bool (*is_configured)(const struct vault_host *host); /* NULL: always */
	/* The config of a company, checked and in its stored form; new reference. */
	json_t *(*normalize)(const struct vault_host *host, const json_t *config,
			     struct error *err);

	int (*create)(const struct vault_call *call, const struct secret_text *value,
		      struct vault_material *out, struct error *err);
	/* `held` is the current version's. */
	int (*rotate)(const struct vault_call *call, const struct vault_held *held,
		      const struct secret_text *value, struct vault_material *out,
		      struct error *err);
	/* Without reading the value. */
	int (*link)(const struct vault_call *call, const char *external_ref,
		    const char *version_ref, struct vault_material *out, struct error *err);
	int (*resolve)(const struct vault_call *call, const struct vault_held *held,
		       struct secret_text *out, struct error *err);
	/* A version that never became current. */
	int (*archive)(const struct vault_call *call, const struct vault_held *held,
		       struct error *err);
	/* The whole secret. Already gone is ERR_VAULT_NOT_FOUND. */
	int (*remove)(const struct vault_call *call, const struct vault_held *held,
		      struct error *err);
	int (*list)(const struct vault_call *call, const struct vault_list_query *query,
		    struct vault_list *out, struct error *err);
	/* Never fails: what is wrong is in its answer. Only host and config of the call are set. */
	void (*health)(const struct vault_call *call, struct vault_health *out);
};

#define VAULT_REGISTER(ident)                                                                      \
	static const struct vault *const ident##_ref                                               \
		__attribute__((used, section("berth_vaults"))) = &(ident)

size_t vault_count(void);
const struct vault *vault_at(size_t index); /* by `order` */
/* ERR_UNPROCESSABLE when no vault has that name. */
const struct vault *vault_find(const char *provider, struct error *err);

/*
 * Fills one of the ERR_VAULT_* codes with its fixed sentence and details {code: <word of the
 * reference>}; nothing that a vault said gets into an answer. Returns -1. `log` (NULL: none) is
 * what the vault said, for the server's log; it must not contain a value.
 */
int vault_fail(struct error *err, enum error_code code, const char *log);
