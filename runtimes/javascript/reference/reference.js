// docs/reference/javascript.md, out of the package's types and their comments:  npm run reference > PAGE
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const FOLDER = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const CORE = "index.js";
// heading -> [what to import, the file behind it, names]; every name that a file exports stands somewhere
/** @type {Record<string, [string, string, string[]][]>} */
const SECTIONS = {
  "Opening a bundle": [
    ["hamburger-edge/node", "adapters/onnxruntime-node.js", ["load"]],
    ["hamburger-edge/web", "adapters/onnxruntime-web.js", ["load", "LoadOptions", "Progress", "clearStore"]],
    ["hamburger-edge/react-native", "adapters/onnxruntime-react-native.js", ["load"]],
  ],
  Answers: [["", CORE, ["Model", "Prompt", "Asking", "Options", "Stream", "Chunk", "TopToken", "FinishReason", "Result", "Stats"]]],
  Calls: [["", CORE, ["Call", "CallLimits"]]],
  Conversations: [["", CORE, ["Chat", "Beginning", "Turn", "Message"]]],
  "Vercel AI SDK": [["hamburger-edge/ai-sdk", "ai-sdk/index.js", ["languageModel", "LanguageModelOptions", "CallKeys"]]],
  "Model info": [["", CORE, ["ModelInfo", "Recommended", "Mode", "setDial"]]],
  "Your own binding": [
    [
      "",
      CORE,
      ["assemble", "readManifest", "checkManifest", "filesToRun", "checkSize", "checkContent", "Runtime", "BackendOptions"],
    ],
  ],
};
const ERRORS = "errors.js"; // a table of their own

const config = ts.readConfigFile(path.join(FOLDER, "tsconfig.json"), ts.sys.readFile).config;
const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, FOLDER);
const files = [...Object.values(SECTIONS).flat().map(([, file]) => file), ERRORS];
const program = ts.createProgram([...new Set(files)].map((file) => path.join(FOLDER, file)), options);
const checker = program.getTypeChecker();

/** What a file exports, by name. @param {string} file */
function exported(file) {
  const source = program.getSourceFile(path.join(FOLDER, file));
  const module = source && checker.getSymbolAtLocation(source);
  if (!module) throw new Error(`${file}: no module`);
  const symbols = checker.getExportsOfModule(module).map((symbol) => /** @type {const} */ ([symbol.name, resolved(symbol)]));
  return new Map(symbols);
}

/** The declared thing behind an export or an alias of a type. @param {ts.Symbol} symbol @returns {ts.Symbol} */
function resolved(symbol) {
  if (symbol.flags & ts.SymbolFlags.Alias) return checker.getAliasedSymbol(symbol);
  const [declaration] = symbol.declarations ?? [];
  const type = declaration && ts.isJSDocTypedefTag(declaration) && declaration.typeExpression;
  const alias = type && ts.isJSDocTypeExpression(type) && checker.getTypeFromTypeNode(type.type).aliasSymbol;
  return alias || symbol;
}

/** A comment as one paragraph. @param {ts.Symbol} symbol */
function said(symbol) {
  return plain(ts.displayPartsToString(symbol.getDocumentationComment(checker)));
}

/** @param {string} text */
function plain(text) {
  return text.replace(/\s+/g, " ").trim().replace(/^[-–] /, "");
}

/** What stands behind a member on its line, where no comment stands above it. @param {ts.Symbol} symbol */
function noted(symbol) {
  const node = symbol.valueDeclaration;
  const above = said(symbol) || plain((node && ts.getTextOfJSDocComment(ts.getJSDocTypeTag(node)?.comment)) ?? "");
  if (above || !node) return above;
  const text = node.getSourceFile().text;
  const [behind] = ts.getTrailingCommentRanges(text, node.end) ?? [];
  return behind ? plain(text.slice(behind.pos + 2, behind.end)) : "";
}

/** @param {ts.Type} type @param {ts.Node} [node] */
function written(type, node) {
  const flags = ts.TypeFormatFlags.NoTruncation | ts.TypeFormatFlags.UseAliasDefinedOutsideCurrentScope;
  return checker.typeToString(type, node, flags).replace(/import\("[^"]*"\)\./g, "");
}

/** As somebody wrote it where it is declared, and as it was worked out elsewhere. @param {ts.Symbol} symbol */
function typeOf(symbol) {
  const node = symbol.valueDeclaration ?? symbol.declarations?.[0];
  const own = node && (ts.getJSDocType(node) ?? (ts.isJSDocPropertyTag(node) ? node.typeExpression?.type : undefined));
  const type = own?.getText() ?? written(checker.getTypeOfSymbol(symbol), node);
  return plain(type).replace(/^undefined \| | \| undefined$/g, "");
}

/** name(parameter: type, ...): type @param {string} name @param {ts.Symbol} symbol */
function call(name, symbol) {
  const node = /** @type {ts.FunctionLikeDeclaration} */ (symbol.valueDeclaration);
  const signature = checker.getSignatureFromDeclaration(node);
  if (!signature) throw new Error(`${name}: no signature`);
  const parameters = node.parameters.map((parameter) => {
    const [tag] = ts.getJSDocParameterTags(parameter);
    if (!tag) throw new Error(`${name}: a parameter without @param`);
    const open = tag.isBracketed || parameter.initializer ? "?" : "";
    return `${tag.name.getText()}${open}: ${plain(tag.typeExpression?.type.getText() ?? "")}`;
  });
  return `${name}(${parameters.join(", ")}): ${written(signature.getReturnType(), node)}`;
}

/** What is said of the parameters. @param {ts.Symbol} symbol */
function parametersOf(symbol) {
  const node = /** @type {ts.FunctionLikeDeclaration} */ (symbol.valueDeclaration);
  return node.parameters.flatMap((parameter) => {
    const [tag] = ts.getJSDocParameterTags(parameter);
    const text = plain(ts.getTextOfJSDocComment(tag?.comment) ?? "");
    return text ? [`\`${tag.name.getText()}\`: ${text}`] : [];
  });
}

/** @param {string} name @param {ts.Symbol} symbol */
function callLine(name, symbol) {
  const words = [said(symbol), ...parametersOf(symbol)].filter(Boolean).map((text) => text.replace(/\.$/, ""));
  return `- \`${call(name, symbol)}\`${words.length ? `: ${words.join(". ")}.` : ""}`;
}

/** @param {readonly (readonly [string, string, string])[]} rows */
function table(rows) {
  const cell = (/** @type {string} */ text) => text.replace(/\|/g, "\\|");
  const lines = rows.map(([name, type, text]) => `| \`${name}\` | \`${cell(type)}\` | ${cell(text)} |`);
  return ["| | | |", "|---|---|---|", ...lines].join("\n");
}

/** @param {ts.Symbol} symbol */
function row(symbol) {
  const open = symbol.flags & ts.SymbolFlags.Optional ? "?" : "";
  return /** @type {const} */ ([`${symbol.name}${open}`, typeOf(symbol), noted(symbol)]);
}

/** Whether an app may see a member. @param {ts.Symbol} member */
function isPublic(member) {
  const node = member.valueDeclaration;
  return !member.name.startsWith("__") && node !== undefined && !ts.isConstructorDeclaration(node) && !/^\W/.test(member.name);
}

/** @param {string} name @param {ts.Symbol} symbol @returns {string[]} */
function described(name, symbol) {
  const node = symbol.valueDeclaration;
  if (node && ts.isFunctionDeclaration(node)) return [callLine(name, symbol)];
  const about = [said(symbol)].filter(Boolean);
  if (node && ts.isClassDeclaration(node)) {
    const members = [...(symbol.members?.values() ?? [])].filter(isPublic);
    const isMethod = (/** @type {ts.Symbol} */ member) => Boolean(member.flags & ts.SymbolFlags.Method);
    const fields = members.filter((member) => !isMethod(member)).map(row);
    const methods = members.filter(isMethod).map((member) => callLine(member.name, member));
    return [`### ${name}`, ...about, ...(fields.length ? [table(fields)] : []), ...(methods.length ? [methods.join("\n")] : [])];
  }
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  if (type.isUnion() || !(type.flags & ts.TypeFlags.Object)) {
    const choices = type.isUnion() ? type.types.map((each) => written(each)).join(" | ") : written(type);
    return [`### ${name}`, ...about, `\`${choices}\``];
  }
  return [`### ${name}`, ...about, table(type.getProperties().map(row))];
}

/** @returns {string} */
function page() {
  const parts = [
    "# JavaScript",
    "Generated from the types of `runtimes/javascript` with `npm run --silent reference > ../../docs/reference/javascript.md` in that " +
      "folder. [The guide](../guide/javascript.md) shows their use.",
  ];
  /** @type {Set<string>} */
  const told = new Set([...exported(ERRORS).keys()]);
  for (const [heading, imports] of Object.entries(SECTIONS)) {
    parts.push(`## ${heading}`);
    for (const [from, file, names] of imports) {
      if (from) parts.push(`From \`${from}\`:`);
      const known = exported(file);
      for (const name of names) {
        const symbol = known.get(name);
        if (!symbol) throw new Error(`${file} does not export ${name}`);
        parts.push(...described(name, symbol));
        told.add(name);
      }
      const missing = [...known.keys()].filter((name) => !told.has(name) && imports.length > 1);
      if (missing.length) throw new Error(`${file}: ${missing.join(", ")}: in no section`);
    }
  }
  const missing = [...exported(CORE).keys()].filter((name) => !told.has(name));
  if (missing.length) throw new Error(`${CORE}: ${missing.join(", ")}: in no section`);
  const errors = [...exported(ERRORS)].filter(([, symbol]) => symbol.flags & ts.SymbolFlags.Class);
  parts.push("## Errors", "Each is one line: the fault, then what to do.");
  parts.push(["| | |", "|---|---|", ...errors.map(([name, symbol]) => `| \`${name}\` | ${said(symbol)} |`)].join("\n"));
  return `${parts.join("\n\n")}\n`;
}

process.stdout.write(page());
