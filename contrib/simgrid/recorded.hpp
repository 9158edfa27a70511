// Recorded calls of one file, a table with the columns op, start_s, offset, size and duration_s, which an
// actor makes again; and rates of the profile that they are judged with.
#ifndef CAWL_RECORDED_HPP
#define CAWL_RECORDED_HPP

#include <simgrid/s4u.hpp>

#include <cstdint>
#include <fstream>
#include <istream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace recorded {

struct Call {
    std::string op;
    double start_s, duration_s;
    uint64_t offset, size;
};

inline std::vector<std::string> fields(const std::string &line) {
    std::vector<std::string> found;
    std::stringstream stream(line);
    for (std::string field; std::getline(stream, field, ',');)
        found.push_back(field);
    return found;
}

inline std::vector<Call> calls(std::istream &input) {
    std::string line;
    std::getline(input, line);
    std::map<std::string, size_t> columns;
    for (const std::string &name : fields(line))
        columns.emplace(name, columns.size());
    std::vector<Call> found;
    while (std::getline(input, line)) {
        auto values = fields(line);
        auto number = [&](const char *column) {
            const std::string &text = values.at(columns.at(column));
            return text.empty() ? 0.0 : std::stod(text);
        };
        // Doubles are exact up to 2^53 bytes.
        found.push_back({values.at(columns.at("op")), number("start_s"), number("duration_s"),
                         static_cast<uint64_t>(number("offset")), static_cast<uint64_t>(number("size"))});
    }
    return found;
}

// Lets the actor make all calls after one another, with the pauses between them: a call begins as long after
// the end of the one before as it did when it was recorded. The sum of their costs, in seconds.
template <class Make> double made(const std::vector<Call> &calls, Make make) {
    double sum_s = 0, ended_s = calls.empty() ? 0 : calls.front().start_s;
    for (const Call &call : calls) {
        if (call.start_s - ended_s >= 1e-9)
            simgrid::s4u::this_actor::sleep_for(call.start_s - ended_s);
        ended_s = call.start_s + call.duration_s;
        double begun_s = simgrid::s4u::Engine::get_clock();
        make(call);
        sum_s += simgrid::s4u::Engine::get_clock() - begun_s;
    }
    return sum_s;
}

// A rate of the profile, in bytes per second: `section` is as "[device.write]".
inline double rate(const char *path, const std::string &section) {
    std::ifstream file(path);
    bool is_there = false;
    for (std::string line; std::getline(file, line);) {
        if (!line.empty() && line[0] == '[')
            is_there = line == section;
        else if (is_there && line.rfind("value = ", 0) == 0)
            return std::stod(line.substr(8));
    }
    throw std::runtime_error(std::string(path) + ": no " + section);
}

} // namespace recorded

#endif
