/** The shell that tinyweb's pages share; how a page is made of it is in README.md. */

export * from "./model-api";
export { importModel, PageError, type ModelImporter } from "./model/import";
export { ModelLoader, pageState, type Engine, type LoaderSurroundings, type ModelState, type PageState } from "./model/loader";
export { fallbackNote, type Note } from "./model/notes";
export { nextFrame, openShell, Shell, type AnyShell, type ShellOptions, type Surroundings } from "./shell";
export { Site, type OfflineState, type SiteBundle, type SiteFacts } from "./site";
export { parseShellSettings, SettingsStore, SHELL_DEFAULTS, THEMES, type ShellSettings, type Theme } from "./store/settings";
export { done, finished, newId, openDatabase, troubleOf, type Trouble } from "./store/database";
export { folderOf, LocalStore, MemoryStore, openStore, type KeyValueStore } from "./store/storage";
export { Store } from "./store/store";
export { describeBreak, describeFailure, errorCode, errorText, type Failure as FailureTold, type Words } from "./text/failures";
export * from "./text/format";
export { diagnostics, modelRows, type AboutRow } from "./diagnostics";
export { Composer } from "./ui/Composer";
export { Dialog, DialogHead } from "./ui/Dialog";
export { Failure } from "./ui/Failure";
export { Confirm, Field, IconButton, Radios, Slider, type Choice } from "./ui/Fields";
export { FileDrop, FilePicker } from "./ui/Files";
export * from "./ui/hooks";
export { Icon, type IconName } from "./ui/icons";
export { Layout, Main, type LayoutProps } from "./ui/Layout";
export { Loading } from "./ui/Loading";
export { NoteLine, ProblemLine, UndoLine } from "./ui/Notes";
export type { PageData } from "./ui/Stored";
export { statusText, type Figure } from "./ui/StatusLine";
