// Registered IR definitions: what torchair asks for when it looks for a converter by itself, and
// when it checks whether this CANN is new enough for an optional input.
#include "ge_api.h"

#include <sstream>

namespace sim {

using Names = std::vector<std::pair<std::string, std::string>>;  // name, kind or type

struct Definition {
    Names inputs, outputs, attributes;
};
static std::map<std::string, Definition> definitions;
static std::string definitions_text;

static Names split_names(const std::string &text) {
    Names names;
    std::istringstream stream(text);
    for (std::string item; std::getline(stream, item, ',');) {
        const size_t colon = item.find(':');
        names.emplace_back(item.substr(0, colon), colon == std::string::npos ? "" : item.substr(colon + 1));
    }
    return names;
}

static const Definition *definition(const std::string &type) {
    const auto found = definitions.find(type);
    return found == definitions.end() ? nullptr : &found->second;
}

}  // namespace sim

// Lines "Type|name:kind,...|name:kind,...|name:type,..." (inputs, outputs, attributes).
NPUSIM_EXPORT void npusim_register_ir(const char *text) {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream columns(line);
        std::string type, inputs, outputs, attributes;
        std::getline(columns, type, '|');
        std::getline(columns, inputs, '|');
        std::getline(columns, outputs, '|');
        std::getline(columns, attributes, '|');
        if (!type.empty())
            sim::definitions[type] = {sim::split_names(inputs), sim::split_names(outputs), sim::split_names(attributes)};
    }
}
// Registered types, one a line.
NPUSIM_EXPORT const char *npusim_registered_ir() {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    sim::definitions_text.clear();
    for (const auto &entry : sim::definitions) sim::definitions_text += entry.first + "\n";
    return sim::definitions_text.c_str();
}

namespace ge {

Operator::~Operator() = default;
Status Operator::GetAllIrAttrNamesAndTypes(StringMap &attributes) const {
    if (const auto *known = sim::definition(data->type))
        for (const auto &attribute : known->attributes)
            attributes[AscendString(attribute.first.c_str())] = AscendString(attribute.second.c_str());
    return 0;
}
// Fails for an input that the IR does not have, which torchair reads as "CANN is too old".
Status Operator::UpdateInputDesc(const char *name, const TensorDesc &) {
    const auto *known = sim::definition(data->type);
    if (!known) return 0;
    for (const auto &input : known->inputs)
        if (input.first == name) return 0;
    return 1;
}
bool OperatorFactory::IsExistOp(const char *type) { return sim::definitions.empty() || sim::definition(type); }
Operator OperatorFactory::CreateOperator(const char *, const char *type) {
    Operator made;
    made.data = std::make_shared<OperatorData>(OperatorData{type});
    return made;
}

}  // namespace ge

// Looked up by name; CANN before it existed makes torchair answer "None".
NPUSIM_EXPORT ge::Status GetRegisteredIrDef(const char *type, ge::StringPairs &inputs, ge::StringPairs &outputs, ge::StringPairs &attributes) {
    sim::count("GetRegisteredIrDef");
    const auto *known = sim::definition(type);
    if (!known) return 1;
    const auto copy = [](const sim::Names &from, ge::StringPairs &to) {
        for (const auto &item : from) to.emplace_back(ge::AscendString(item.first.c_str()), ge::AscendString(item.second.c_str()));
    };
    copy(known->inputs, inputs);
    copy(known->outputs, outputs);
    copy(known->attributes, attributes);
    return 0;
}
