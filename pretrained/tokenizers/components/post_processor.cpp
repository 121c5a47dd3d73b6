// Post-processors: the ids that are added around those of a text.
#include "core/error.h"
#include "core/one_line.h"
#include "pretrained/tokenizers/components/decoder.h"

namespace stretto::nn::tokenizers {
namespace {

// A pair of a token and its id, as in BertProcessing.
int64_t id_of_pair(JsonReader& fields, const std::string& key) {
  const Json& pair = fields.value(key);
  if (!pair.is_list() || pair.items.size() != 2 || pair.items[1].kind != Json::Kind::integer ||
      pair.items[1].integer < 0 || pair.items[1].integer >= max_ids)
    fields.refuse(key + " must be a pair of a token and its id");
  return pair.items[1].integer;
}

void add_special(const Json& piece, const Json& tokens, const JsonReader& fields,
                 std::vector<int64_t>& to) {
  const Json& token = tokens[piece["id"].text];
  const Json& ids = token["ids"];
  if (!ids.is_list() || ids.items.empty())
    fields.refuse("the token " + in_quotes(piece["id"].text) + " is not in special_tokens");
  for (const Json& id : ids.items) {
    if (id.kind != Json::Kind::integer || id.integer < 0 || id.integer >= max_ids)
      fields.refuse("an id that is not 0 to " + std::to_string(max_ids - 1));
    to.push_back(id.integer);
  }
}

Template of_template(JsonReader& fields) {
  Template made;
  const Json& single = fields.value("single");
  const Json& tokens = fields.value("special_tokens");
  fields.ignore({"pair"});
  if (!single.is_list()) fields.refuse("single must be a list");
  bool behind = false;
  for (const Json& piece : single.items) {
    if (!piece.is_object() || piece.members.size() != 1)
      fields.refuse("single has a malformed part");
    const auto& [kind, value] = piece.members[0];
    if (kind == "SpecialToken") {
      add_special(value, tokens, fields, behind ? made.after : made.before);
    } else if (kind == "Sequence" && value["id"].text == "A" && !behind) {
      behind = true;
    } else {
      fields.refuse("single must contain special tokens and the sequence A once");
    }
  }
  if (!behind) fields.refuse("single must contain the sequence A");
  return made;
}

void add(const Json& json, const std::string& name, Template& to, bool& has_template);

Template of_type(const std::string& type, JsonReader& fields, const std::string& name,
                 bool& has_template) {
  if (type == "ByteLevel") {
    fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
    return {};
  }
  // tokenizers does not join the parts of a template before the next processor.
  if (has_template && type != "Sequence")
    fields.refuse("behind TemplateProcessing is not supported");
  if (type == "TemplateProcessing") {
    Template made = of_template(fields);
    has_template = !made.before.empty() || !made.after.empty();
    return made;
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    if (type == "RobertaProcessing") fields.ignore({"trim_offsets", "add_prefix_space"});
    const int64_t last = id_of_pair(fields, "sep");
    return {{id_of_pair(fields, "cls")}, {last}};
  }
  if (type == "Sequence") {
    const Json& list = fields.value("processors");
    if (!list.is_list()) fields.refuse("processors must be a list");
    Template all;
    for (const Json& item : list.items) add(item, name, all, has_template);
    return all;
  }
  fields.refuse("is not supported");
}

void add(const Json& json, const std::string& name, Template& to, bool& has_template) {
  const Json& type = json["type"];
  JsonReader fields(op, name + ": post_processor " + one_line(type.text, 80), json);
  fields.ignore({"type"});
  const Template part = of_type(type.text, fields, name, has_template);
  fields.finish();
  to.before.insert(to.before.begin(), part.before.begin(), part.before.end());
  to.after.insert(to.after.end(), part.after.begin(), part.after.end());
}

}  // namespace

Template make_template(const Definition& definition) {
  Template made;
  bool has_template = false;
  if (!definition.post_processor.is_null())
    add(definition.post_processor, definition.name, made, has_template);
  return made;
}

}  // namespace stretto::nn::tokenizers
