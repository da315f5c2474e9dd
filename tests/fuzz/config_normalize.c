/*
 * Config normalisers: any JSON, any driver. What is accepted must read as itself again, must be
 * writable, and must not share anything with the input; what is refused is refused with 422.
 */
#include <assert.h>
#include <string.h>
#include "driver/maker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct makers *all_makers(void)
{
	static struct maker_host host = { .allow_fake = true };
	static struct makers all;

	if (!all.count)
		makers_init(&all, &host);
	return &all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct error err = { 0 };

	if (size < 1)
		return 0;

	enum driver_kind kind = data[0] % DRIVER_KIND_COUNT;
	bool saving = data[0] & 0x80;
	_cleanup_json_ json_t *config = json_parse((const char *)data + 1, size - 1, NULL);

	if (!config)
		return 0;

	_cleanup_free_ char *before = json_text(config);
	_cleanup_json_ json_t *once = maker_normalize(all_makers(), kind, config, saving, &err);

	if (!once) {
		assert(err.code == ERR_UNPROCESSABLE && err.message[0]);
		return 0;
	}

	_cleanup_json_ json_t *twice = maker_normalize(all_makers(), kind, once, saving, &err);
	_cleanup_free_ char *after = json_text(config);

	assert(twice && json_equal(once, twice));
	assert(strcmp(before, after) == 0);
	return 0;
}
