/* As much of an Arduino core as the example uses, so that it compiles where there is none. */
#ifndef ARDUINO_H
#define ARDUINO_H
#include <stddef.h>
#include <stdint.h>

struct SerialStub {
    void begin(unsigned long) {}
    void print(const char *) {}
    void flush() {}
    explicit operator bool() const { return true; }
    bool operator!() const { return false; }
};
extern SerialStub Serial;
unsigned long millis();
unsigned long micros();
extern "C" void yield(void);

#endif
