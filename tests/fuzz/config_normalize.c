/*
 * Config normalisers: any JSON, any driver. What is accepted must read as itself again, must be
 * writable, and must not share anything with the input; what is refused is refused with 422.
 */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "driver/driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct drivers *drivers(void)
{
	static struct clock clock;
	static struct driver_host host;
	static struct drivers all = { .host = &host, .table = DRIVERS_DEFAULT };
	static int dirfd = -1;

	if (dirfd < 0) {
		dirfd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		clock_init_system(&clock);

		struct provider_host_options options = {
			.state_dirfd = dirfd,
			.state_path = ".",
			.allow_fake = true,
			.clock = &clock,
		};

		if (provider_host_new(&options, &host.providers, NULL) < 0)
			abort();
	}
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
	_cleanup_json_ json_t *once = driver_normalize(drivers(), kind, config, saving, &err);

	if (!once) {
		assert(err.code == ERR_UNPROCESSABLE && err.message[0]);
		return 0;
	}

	_cleanup_json_ json_t *twice = driver_normalize(drivers(), kind, once, saving, &err);
	_cleanup_free_ char *after = json_text(config);

	assert(twice && json_equal(once, twice));
	assert(strcmp(before, after) == 0);
	return 0;
}
