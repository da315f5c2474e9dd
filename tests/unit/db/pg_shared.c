/*
 * Keeps a PostgreSQL for test programs that run at the same time: prints the directory to give them
 * as BERTH_TEST_POSTGRES, and ends when its input does. Without PostgreSQL it prints nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "pg_fixture.h"

int main(void)
{
	char byte;

	if (!pg_fixture_start())
		return 0;
	free(pg_fixture_migrated_database());
	puts(pg_fixture_dir());
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	return 0;
}
