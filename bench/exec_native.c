/*
 * In a native place: walls cost at birth, not at every command.
 */
#include "exec_held.h"

#include "bench.h"
#include "native.h"

static void acquire(struct client *c, char lease_id[160])
{
	char company[40], environment[40];

	native_print_attach_cost();
	native_company(c, company);
	if (!native_environment(c, company, "native", "{\"provider\":\"native\"}", environment))
		bench_fail("no native places");
	native_acquire(c, environment, lease_id);
}

int main(int argc, char **argv)
{
	exec_held(argc, argv, "exec-native", acquire);
	return 0;
}
