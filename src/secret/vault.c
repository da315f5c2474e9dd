/* The vaults this program contains, and the words in which their failures are told. */
#include "secret/vault.h"

#include "base/log.h"
#include "base/text.h"

extern const struct vault *const __start_berth_vaults[] __attribute__((weak));
extern const struct vault *const __stop_berth_vaults[] __attribute__((weak));

size_t vault_count(void)
{
	return (size_t)(__stop_berth_vaults - __start_berth_vaults);
}

/* The table has a handful of entries: the nth by order is the one that n others come before. */
const struct vault *vault_at(size_t index)
{
	for (size_t i = 0; i < vault_count(); i++) {
		size_t before = 0;

		for (size_t j = 0; j < vault_count(); j++)
			before += __start_berth_vaults[j]->order < __start_berth_vaults[i]->order;
		if (before == index)
			return __start_berth_vaults[i];
	}
	return NULL;
}

const struct vault *vault_find(const char *provider, struct error *err)
{
	for (size_t i = 0; i < vault_count(); i++) {
		if (str_equal(__start_berth_vaults[i]->provider, provider))
			return __start_berth_vaults[i];
	}
	error_set(err, ERR_UNPROCESSABLE, "Unknown secret provider");
	return NULL;
}

void vault_material_clear(struct vault_material *made)
{
	json_decref(made->material);
	free(made->external_ref);
	free(made->version_ref);
	*made = (struct vault_material){ 0 };
}

void vault_list_clear(struct vault_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->items[i].external_ref);
		free(list->items[i].name);
		json_decref(list->items[i].metadata);
	}
	free(list->items);
	free(list->next_token);
	*list = (struct vault_list){ 0 };
}

void vault_health_clear(struct vault_health *health)
{
	free(health->message);
	json_decref(health->warnings);
	json_decref(health->backup_guidance);
	json_decref(health->details);
	*health = (struct vault_health){ 0 };
}

static const struct {
	enum error_code code;
	const char *word; /* of the reference */
	const char *sentence;
} FAILURES[] = {
	{ ERR_VAULT_UNUSABLE, "unusable", "The vault cannot be used" },
	{ ERR_VAULT_DENIED, "access_denied", "The vault denied access" },
	{ ERR_VAULT_NOT_FOUND, "not_found", "The vault does not have this secret" },
	{ ERR_VAULT_CONFLICT, "conflict", "The vault already has such a secret" },
	{ ERR_VAULT_THROTTLED, "throttled", "The vault asks for fewer requests: try again later" },
	{ ERR_VAULT_INVALID, "invalid_request", "The vault refused the request as invalid" },
	{ ERR_VAULT_UNAVAILABLE, "provider_unavailable", "The vault cannot be reached" },
	{ ERR_VAULT, "provider_error", "The vault failed" },
};

int vault_fail(struct error *err, enum error_code code, const char *log)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(FAILURES) - 1 && FAILURES[i].code != code)
		i++;
	if (log)
		log_warn("vault: %s: %s", FAILURES[i].word, log);
	error_set(err, FAILURES[i].code, "%s", FAILURES[i].sentence);
	error_set_details(err, xasprintf("{\"code\":\"%s\"}", FAILURES[i].word));
	return -1;
}
