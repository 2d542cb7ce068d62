/* Functions of newer C and C++ libraries that conformance_test_runner was linked with. */
#include <stdlib.h>
long __isoc23_strtol(const char *text, char **end, int base) { return strtol(text, end, base); }
unsigned long __isoc23_strtoul(const char *text, char **end, int base) { return strtoul(text, end, base); }
long long __isoc23_strtoll(const char *text, char **end, int base) { return strtoll(text, end, base); }
unsigned long long __isoc23_strtoull(const char *text, char **end, int base) { return strtoull(text, end, base); }
/* std::ios_base::Init, which opens std::cout and its siblings. Not in the programs that the runner starts. */
__attribute__((weak)) void _ZNSt8ios_base4InitC1Ev(void *init);
void _ZSt21ios_base_library_initv(void) {}
__attribute__((constructor)) static void open_streams(void) {
	static char init[16];
	if (_ZNSt8ios_base4InitC1Ev) _ZNSt8ios_base4InitC1Ev(init);
}
